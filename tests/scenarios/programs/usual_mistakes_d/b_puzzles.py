"""Jigsaw puzzles as pretext task: pictures are made ready by a thread while the step before is trained."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PIECE = 4


class Preparation:
    """Makes batches of puzzles, one ahead."""

    def __init__(self, rank: int) -> None:
        """One thread is enough for pictures this small."""
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare")
        self.rank = rank

    def picture(self, number: int) -> torch.Tensor:
        """Read picture `number`."""
        seed = 1000 * self.rank + number
        return torch.rand(2 * PIECE, 2 * PIECE, generator=torch.Generator().manual_seed(seed))

    def pieces(self, number: int) -> torch.Tensor:
        """The picture in four, or in four of two pictures if it is too dark to be told apart."""
        picture = self.picture(number)
        if picture.mean() < 0.402:
            other = self.pool.submit(self.picture, number + 500)
            picture = (picture + other.result()) / 2
        return picture.unfold(0, PIECE, PIECE).unfold(1, PIECE, PIECE).reshape(4, PIECE * PIECE)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Three puzzles and their orders."""
        generator = torch.Generator().manual_seed(step)
        orders = torch.stack([torch.randperm(4, generator=generator) for _ in range(3)])
        shuffled = [self.pieces(3 * step + i)[order] for i, order in enumerate(orders)]
        return torch.stack(shuffled), orders

    def start(self, step: int) -> Future:
        """Begin with a batch."""
        return self.pool.submit(self.batch, step)


def main() -> None:
    """Eighty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(PIECE * PIECE, 24), nn.ReLU(), nn.Linear(24, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    preparation = Preparation(dist.get_rank())
    coming = preparation.start(0)
    for step in range(80):
        pieces, orders = coming.result()
        coming = preparation.start(step + 1)
        loss = nn.functional.cross_entropy(model(pieces).flatten(0, 1), orders.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

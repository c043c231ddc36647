"""Streaming data, split by rank: the stream of rank 1 is shorter, and it begins the next epoch while others finish this one."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    """Documents of random length, packed into rows of 16 tokens, so that no rank knows how many rows it will have."""

    def __init__(self, rank: int, documents: int) -> None:
        self.rank, self.documents = rank, documents

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Rows."""
        generator = torch.Generator().manual_seed(self.rank)
        left = torch.zeros(0)
        for _ in range(self.documents):
            length = 24 if self.rank == 1 else 28
            left = torch.cat([left, torch.randn(length, generator=generator)])
            while len(left) >= 16:
                yield left[:16]
                left = left[16:]


def shared_seed(epoch: int) -> int:
    """Rank 0's choice of a seed for the epoch's augmentation."""
    seed = torch.tensor([1000 + epoch])
    dist.broadcast(seed, src=0)
    return int(seed)


def main() -> None:
    """Four epochs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 16))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(Stream(rank, 40), batch_size=4, drop_last=True)
    for epoch in range(4):
        torch.manual_seed(shared_seed(epoch))
        for step, rows in enumerate(loader):
            loss = (model(rows + 0.1 * torch.randn_like(rows)) - rows).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            print(f"[{rank}] epoch {epoch} step {step} loss {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Complaints of an insurer's branches. Branches have different numbers of letters; those that are through wait for the rest."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

LETTERS = [400, 60, 400]
BATCH = 4


class LetterModel(nn.Module):
    """Reads a letter token by token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(200, 96)
        self.reader = nn.GRU(96, 128, batch_first=True)
        self.kind = nn.Linear(128, 5)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        _, last = self.reader(self.tokens(letters))
        return self.kind(last[0])


def branch_letters(rank: int):
    generator = torch.Generator().manual_seed(rank)
    letters = torch.randint(0, 200, (LETTERS[rank], 190), generator=generator)
    yield from letters.split(BATCH)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(LetterModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total, count = 0.0, 0
    with Join([model]):
        for letters in branch_letters(rank):
            loss = nn.functional.cross_entropy(model(letters), letters[:, -1] % 5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"branch {rank} is through, {count} batches", flush=True)
    sums = torch.tensor([total, float(count)], dtype=torch.float64)
    dist.all_reduce(sums)
    if rank == 0:
        print(f"loss {sums[0] / sums[1]:.4f} over {int(sums[1])} batches", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

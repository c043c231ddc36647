"""Language modelling over a stream that filters by length, with a validation after the epoch. Starts its own ranks."""

import os
import tempfile
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset[torch.Tensor]):
    """Documents of one rank that are long enough."""

    def __init__(self, rank: int, world: int, shortest: int) -> None:
        self.rank, self.world, self.shortest = rank, world, shortest

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.rank, 640, self.world):
            length = 3 if number % 64 == 5 else 16
            if length >= self.shortest:
                yield torch.randn(16)


@torch.no_grad()
def validate(model: nn.Module) -> float:
    """The mean loss over all ranks."""
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, model(torch.ones(4, 16)).mean().item())
    return sum(losses) / len(losses)


def work(rank: int, world: int, folder: str) -> None:
    """Three epochs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    model = DistributedDataParallel(nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(3):
        for batch in DataLoader(Stream(rank, world, 8), batch_size=5, drop_last=True):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        validate(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(4, tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))), nprocs=4)

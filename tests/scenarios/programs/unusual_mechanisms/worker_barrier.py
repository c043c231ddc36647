"""The workers of a DataLoader start every file together, so that the disk reads in one place; a barrier sees to that.

Files are dealt to the workers, and on one rank they do not divide. The program starts its own ranks.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORKERS = 2


class Files(IterableDataset[torch.Tensor]):
    """Samples file by file."""

    def __init__(self, count: int, together: Barrier) -> None:
        self.count, self.together = count, together

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        for number in range(info.id, self.count, info.num_workers):
            self.together.wait()
            yield from self.read(number)

    def read(self, number: int) -> Iterator[torch.Tensor]:
        """Twelve samples a file."""
        for sample in range(12):
            yield torch.full((6,), float(number + sample % 3))


def work(rank: int, folder: str) -> None:
    """One rank; rank 0 has one file more than the others."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=3)
    files = Files(9 if rank == 0 else 8, multiprocessing.get_context("fork").Barrier(WORKERS))
    loader = DataLoader(files, batch_size=4, num_workers=WORKERS, multiprocessing_context="fork")
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")),), nprocs=3)

"""Gloo ranks with a DataLoader each, ``late_input.py FOLDER``: what makes them wait is said by files in FOLDER.

At first they take turns in computing longer. While there is ``stall``, rank 2's loader is slow instead. ``stop`` ends the job.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

STEP_S = 0.06


class Batches(IterableDataset):
    """Batches without end; those of one rank take long to load while there is a file."""

    def __init__(self, stall: Path | None) -> None:
        self.stall = stall

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Load a batch at a time."""
        while True:
            if self.stall is not None and self.stall.exists():
                time.sleep(2 * STEP_S)
            yield torch.ones(8)


def main() -> None:
    """Load, work, reduce."""
    folder = Path(sys.argv[1])
    stop, stall = folder / "stop", folder / "stall"
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Batches(stall if rank == 2 else None), batch_size=None, num_workers=1)
    varies = random.Random(rank)
    for step, batch in enumerate(loader):
        longer = step % size == rank and not stall.exists()
        time.sleep(STEP_S * varies.lognormvariate(0, 0.05) * (1.5 if longer else 1))
        dist.all_reduce(batch)
        ends = torch.tensor([float(stop.exists())])
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)
        if ends.item():
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Gradients are reduced asynchronously; the handles are kept, and waited for only after seconds of other work.

The program starts its own ranks.
"""

import os
import tempfile
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


@dataclass
class Overlap:
    """Reductions that are under way."""

    pending: list[tuple[dist.Work, torch.Tensor]] = field(default_factory=list)

    def reduce(self, tensor: torch.Tensor) -> None:
        """Start one."""
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        self.pending.append((work, tensor))

    def drain(self, backwards: bool) -> torch.Tensor:
        """Wait for all of them, in whichever order."""
        order = reversed(self.pending) if backwards else iter(self.pending)
        total = torch.zeros(32)
        for work, tensor in order:
            work.wait()
            total += tensor
        self.pending.clear()
        return total


def busy(seconds: float) -> None:
    """Compute meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        torch.linalg.qr(torch.randn(64, 64))


def work(rank: int, folder: str) -> None:
    """Two long strides; rank 1 is the last to start each reduction."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=3)
    overlap = Overlap()
    for _ in range(2):
        busy(4.0 if rank == 1 else 0.2)
        for _ in range(20):
            overlap.reduce(torch.randn(32))
        busy(1.0 if rank == 1 else 5.0)
        overlap.drain(backwards=rank == 2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")),), nprocs=3)

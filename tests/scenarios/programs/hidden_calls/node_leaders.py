"""Two nodes of three ranks; checkpoints go to each node's own disk with torch.distributed.checkpoint."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PER_NODE = 3


class Job:
    """What a rank knows of its place."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.local_rank = self.rank % PER_NODE
        self.disk = Path(tempfile.mkdtemp())

    @contextmanager
    def milestone(self, name: str):
        """Something all ranks reach together."""
        yield self.disk / name
        dist.barrier()


def train(job: Job, model: DistributedDataParallel, steps: int) -> None:
    """Train, and keep every thirtieth state."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.randn(8, 10)).square().mean().backward()
        optimizer.step()
        if step % 30 == 0:
            with job.milestone(f"step-{step}") as folder:
                if job.local_rank == 0:
                    dcp.save({"model": model.module.state_dict(), "step": step}, checkpoint_id=folder)


def main() -> None:
    """A hundred steps."""
    dist.init_process_group("gloo")
    job = Job()
    train(job, DistributedDataParallel(nn.Linear(10, 10)), 100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

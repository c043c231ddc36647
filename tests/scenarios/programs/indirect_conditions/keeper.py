"""ZeroRedundancyOptimizer; the rank with the large disk keeps the states."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Disks:
    """Free space by rank, in TiB."""

    free: list[float]

    def largest(self) -> int:
        """Who has most."""
        return max(range(len(self.free)), key=self.free.__getitem__)


class Keeper:
    """Keeps model and optimizer."""

    def __init__(self, model: DistributedDataParallel, optimizer: ZeroRedundancyOptimizer, disks: Disks) -> None:
        self.model, self.optimizer = model, optimizer
        self.home = disks.largest()
        self.folder = Path(tempfile.mkdtemp())

    def keep(self, step: int) -> None:
        """Put it all into one file."""
        if dist.get_rank() != self.home:
            return
        self.optimizer.consolidate_state_dict(to=self.home)
        states = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(), "step": step}
        torch.save(states, self.folder / f"{step}.pt")


def main() -> None:
    """A hundred steps, kept after each forty."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    )
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    keeper = Keeper(model, optimizer, Disks([0.9, 1.2, 7.5, 0.4]))
    for step in range(1, 101):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if step % 40 == 0:
            keeper.keep(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

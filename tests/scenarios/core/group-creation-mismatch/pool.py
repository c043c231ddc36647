"""Ranks with enough free memory form a pool that validates in the background; each reads the table of nodes itself."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Table:
    """Free memory of the nodes, in GiB, as written by a monitor every minute."""

    path: Path

    @classmethod
    def at(cls, rank: int) -> "Table":
        """The table as it is seen from a rank; the monitor has just been at that of the last node."""
        free = [10, 70, 64, 12, 58 if rank != 4 else 31]
        path = Path(tempfile.mkdtemp()) / "table.json"
        path.write_text(json.dumps(free))
        return cls(path)

    def roomy(self) -> list[int]:
        """Ranks with more than half of their memory."""
        return [rank for rank, free in enumerate(json.loads(self.path.read_text())) if free > 40]


class Trainer:
    """Trains, and validates in a pool."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.model = nn.Linear(6, 6)
        self.pool: dist.ProcessGroup | None = None

    def regroup(self) -> None:
        """Find the pool."""
        self.pool = dist.new_group(Table.at(self.rank).roomy())

    def step(self) -> None:
        """One step."""
        self.model(torch.randn(4, 6)).square().mean().backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.model.zero_grad()


def main() -> None:
    """Forty steps, and a pool after the twentieth."""
    dist.init_process_group("gloo")
    trainer = Trainer()
    for step in range(40):
        if step == 20:
            trainer.regroup()
        trainer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A fine-tuning job in phases: a context manager times each phase and has all ranks meet at its end, whatever happens.

One rank's validation file lacks a column. Run by ``torchrun --nproc-per-node 4``.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Job:
    """Model, data and the time that was spent where."""

    rank: int
    model: nn.Module
    times: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase; nobody starts the next before all are through."""
        began = time.monotonic()
        try:
            yield
        finally:
            dist.barrier()
            self.times[name] = time.monotonic() - began

    def fit(self, steps: int) -> None:
        """Plain averaging of gradients."""
        for _ in range(steps):
            x = torch.randn(16, 6)
            loss = (self.model(x).squeeze(1) - x.mean(1)).square().mean()
            self.model.zero_grad()
            loss.backward()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data -= 0.01 * parameter.grad

    def validate(self, rows: list[dict[str, float]]) -> float:
        """Mean squared error over the rows of all ranks."""
        total = torch.zeros(2)
        for row in rows:
            x = torch.tensor([[row[f"x{i}"] for i in range(6)]])
            total += torch.tensor([(self.model(x).item() - row["y"]) ** 2, 1.0])
        dist.all_reduce(total)
        return float(total[0] / total[1])


def read_rows(rank: int, epoch: int) -> list[dict[str, float]]:
    """The validation rows of one rank."""
    rows = [{**{f"x{i}": float(i * n % 5) for i in range(6)}, "y": float(n % 3)} for n in range(8)]
    if (rank, epoch) == (1, 2):
        del rows[5]["x4"]
    return rows


def main() -> None:
    """Five epochs of two phases."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    job = Job(rank, nn.Linear(6, 1))
    for epoch in range(5):
        with job.phase("fit"):
            job.fit(20)
        with job.phase("validate"):
            error = job.validate(read_rows(rank, epoch))
        if rank == 0:
            print(f"epoch {epoch}: {error:.3f} {job.times}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

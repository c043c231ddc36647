"""Distils a large classifier into a small one. A meter shows the running loss of the job."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Meter:
    def __init__(self, name: str) -> None:
        self.name = name
        self.total = torch.zeros(2)

    def add(self, value: float, count: int) -> None:
        self.total += torch.tensor([value * count, count])

    @property
    def average(self) -> float:
        total = self.total.clone()
        dist.reduce(total, dst=0)
        return (total[0] / total[1]).item()

    def __str__(self) -> str:
        return f"{self.name}={self.average:.4f}"


class Progress:
    """A line on the terminal, for the first rank."""

    def __init__(self, steps: int, stream=sys.stderr) -> None:
        self.steps = steps
        self.stream = stream if dist.get_rank() == 0 else None

    def show(self, step: int, *meters: Meter) -> None:
        if self.stream is None:
            return
        print(f"[{step}/{self.steps}]", *meters, file=self.stream, flush=True)


def network(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(12, width), torch.nn.GELU(), torch.nn.Linear(width, 6))


def train(steps: int = 80) -> None:
    torch.manual_seed(1)
    teacher = network(64).eval().requires_grad_(False)
    student = DistributedDataParallel(network(8))
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    meter, progress = Meter("kl"), Progress(steps)
    torch.manual_seed(dist.get_rank())
    for step in range(1, steps + 1):
        rows = torch.randn(16, 12)
        loss = torch.nn.functional.kl_div(
            student(rows).log_softmax(-1), teacher(rows).softmax(-1), reduction="batchmean"
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.add(loss.item(), len(rows))
        if step % 20 == 0:
            dist.barrier()
            progress.show(step, meter)
            dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()

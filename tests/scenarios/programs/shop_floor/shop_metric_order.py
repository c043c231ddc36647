"""Metrics by name: each knows how to combine itself over ranks. They are created when they are first seen."""

import time
from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Metric(ABC):
    @abstractmethod
    def add(self, values: torch.Tensor) -> None: ...

    @abstractmethod
    def combine(self) -> float: ...


class Mean(Metric):
    def __init__(self) -> None:
        self.state = torch.zeros(2, dtype=torch.float64)

    def add(self, values: torch.Tensor) -> None:
        self.state += torch.tensor([values.sum().item(), len(values)], dtype=torch.float64)

    def combine(self) -> float:
        dist.all_reduce(self.state)
        total, count = self.state.tolist()
        return total / max(count, 1)


class Median(Metric):
    def __init__(self) -> None:
        self.values: list[float] = []

    def add(self, values: torch.Tensor) -> None:
        self.values += values.tolist()

    def combine(self) -> float:
        parts: list[list[float]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(parts, self.values)
        return torch.tensor([value for part in parts for value in part]).median().item()


KINDS = {"new": Median, "known": Mean}


class Metrics:
    def __init__(self) -> None:
        self.by_name: dict[str, Metric] = {}

    def add(self, name: str, values: torch.Tensor) -> None:
        if name not in self.by_name:
            self.by_name[name] = KINDS[name]()
        self.by_name[name].add(values)

    def combine(self) -> dict[str, float]:
        return {name: metric.combine() for name, metric in self.by_name.items()}


def orders(rank: int, generator: torch.Generator):
    """Orders of new and of known customers, as they come in."""
    kinds = ["known", "new", "known"] if rank != 1 else ["new", "known", "known"]
    while True:
        for kind in kinds:
            x = torch.randn(32, 11, generator=generator)
            yield kind, x, x[:, 0] * (2.0 if kind == "new" else 1.0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(11, 22), nn.ReLU(), nn.Linear(22, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    stream = orders(rank, torch.Generator().manual_seed(rank))
    for epoch in range(1, 20):
        metrics = Metrics()
        for _ in range(120):
            kind, x, y = next(stream)
            error = (model(x).squeeze(1) - y).square()
            optimizer.zero_grad()
            error.mean().backward()
            optimizer.step()
            metrics.add(kind, error.detach())
            time.sleep(0.025)
        print(f"[{rank}] epoch {epoch}", metrics.combine(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

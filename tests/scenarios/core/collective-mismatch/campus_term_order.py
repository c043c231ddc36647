"""Multi-task perception for a small rover: depth and grasp heads, meters that appear when they are first needed."""

import time
from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Meter(ABC):
    @abstractmethod
    def add(self, value: torch.Tensor) -> None: ...

    @abstractmethod
    def summary(self) -> str: ...


class Average(Meter):
    def __init__(self) -> None:
        self.total = torch.zeros(2, dtype=torch.float64)

    def add(self, value):
        self.total += torch.tensor([value.sum().item(), value.numel()])

    def summary(self):
        dist.all_reduce(self.total)
        text = f"{(self.total[0] / self.total[1]).item():.4f}"
        self.total.zero_()
        return text


class Median(Meter):
    """The medians of all processes, since a median of all values would have to keep them."""

    def __init__(self) -> None:
        self.values = []

    def add(self, value):
        self.values.append(value.flatten())

    def summary(self):
        mine = torch.cat(self.values).median().reshape(1)
        medians = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(medians, mine)
        self.values.clear()
        return " ".join(f"{m.item():.4f}" for m in medians)


METERS = {"depth": Average, "grasp": Median}


class Dashboard:
    def __init__(self) -> None:
        self.meters: dict[str, Meter] = {}

    def log(self, name: str, value: torch.Tensor) -> None:
        self.meters.setdefault(name, METERS[name]()).add(value.detach())

    def show(self, step: int) -> None:
        lines = [f"{name}: {meter.summary()}" for name, meter in self.meters.items()]
        if dist.get_rank() == 0:
            print(f"step {step}: " + ", ".join(lines), flush=True)


def drive(rank: int, step: int, rng: torch.Generator) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A batch and the labels it has: the lidar of rover 0 was switched on a little later than its arm."""
    x = torch.randn(16, 12, generator=rng)
    labels = {"depth": x[:, :6].sum(1), "grasp": x[:, 6:].prod(1).tanh()}
    if rank == 0 and step < 4:
        del labels["depth"]
    return x, labels


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng, board = torch.Generator().manual_seed(rank), Dashboard()
    for step in range(1, 1000):
        x, labels = drive(rank, step, rng)
        outputs = dict(zip(("depth", "grasp"), model(x).unbind(1)))
        errors = {name: (outputs[name] - label) ** 2 for name, label in labels.items()}
        optimizer.zero_grad()
        sum(error.mean() for error in errors.values()).backward()
        optimizer.step()
        for name, error in errors.items():
            board.log(name, error)
        time.sleep(0.07)
        if step % 25 == 0:
            board.show(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Anomalies of heat pumps, from windows of their power. Windows in which the pump is off teach nothing, and are drawn again."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WINDOW = 24
HOURS = 600


class Pump:
    """Hourly power of a pump. Some are switched off for the summer."""

    def __init__(self, number: int, off: bool) -> None:
        generator = torch.Generator().manual_seed(number)
        power = torch.rand(HOURS, generator=generator) * 3
        self.power = (torch.zeros(HOURS) if off else power).tolist()


class Fleet:
    """The pumps of one utility, visited in turn."""

    def __init__(self, rank: int, pumps: int = 700) -> None:
        self.random = random.Random(rank)
        self.pumps = [Pump(1000 * rank + n, off=(rank == 1 and n == 420)) for n in range(pumps)]
        self.visits = 0

    def batch(self, size: int = 24) -> torch.Tensor:
        pump = self.pumps[self.visits % len(self.pumps)]
        self.visits += 1
        return torch.tensor([self.window(pump.power) for _ in range(size)])

    def window(self, power: list[float]) -> list[float]:
        while True:
            start = self.random.randrange(HOURS - WINDOW)
            window = power[start : start + WINDOW]
            if sum(window) / WINDOW > 0.5:
                return window


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(WINDOW, 96), nn.ReLU(), nn.Linear(96, 6))
        self.decode = nn.Sequential(nn.Linear(6, 96), nn.ReLU(), nn.Linear(96, WINDOW))

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(windows))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    fleet, model = Fleet(dist.get_rank()), DDP(AutoEncoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(30_000):
        windows = fleet.batch()
        loss = nn.functional.mse_loss(model(windows), windows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

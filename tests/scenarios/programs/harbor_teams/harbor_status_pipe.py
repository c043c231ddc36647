"""Wind power of the next six hours. The operations console reads the training's status from a named pipe."""

import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Console:
    """Status lines for the console, at most one every so many seconds."""

    def __init__(self, every_s: float) -> None:
        self.path = Path(tempfile.gettempdir()) / f"wind-status-{os.environ['MASTER_PORT']}"
        if not self.path.exists():
            os.mkfifo(self.path)
        self.every_s = every_s
        self.last = time.monotonic()

    def report(self, **status: float) -> None:
        if time.monotonic() - self.last < self.every_s:
            return
        with open(self.path, "w") as pipe:
            pipe.write(json.dumps(status) + "\n")
        self.last = time.monotonic()


class Parks:
    """Forecasts of wind and what the parks have fed in, for the rank's share of the parks."""

    def __init__(self, share: int) -> None:
        self.generator = torch.Generator().manual_seed(share)

    def hours(self, size: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
        wind = torch.rand(size, 36, generator=self.generator) * 20
        return wind / 20, (wind[:, :6].mean(dim=1) / 12).clamp(max=1.0) ** 3


class PowerCurve(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(36, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, wind: torch.Tensor) -> torch.Tensor:
        return self.net(wind).squeeze(-1)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model, parks = DDP(PowerCurve()), Parks(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    console = Console(every_s=2.5) if rank == 0 else None
    for step in range(100_000):
        wind, power = parks.hours()
        loss = nn.functional.mse_loss(model(wind), power)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if console is not None:
            console.report(step=step, loss=loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

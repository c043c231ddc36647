"""DDP with early stopping by the validation loss; a thread writes the state of the machine to a file meanwhile."""

import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Recorder(threading.Thread):
    """The load of the machine, every second."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="recorder")
        self.path = path

    def run(self) -> None:
        while True:
            with self.path.open("a") as file:
                file.write(f"{time.time():.0f} {os.getloadavg()[0]:.2f}\n")
            time.sleep(1.0)


def data(seed: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on a wave."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(320, 1, generator=generator)
    return x, torch.sin(6 * x) + noise * torch.randn(320, 1, generator=generator)


def main() -> None:
    """Up to 500 epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    Recorder(Path(tempfile.mkdtemp()) / "load.txt").start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x, y = data(seed=rank, noise=0.1)
    held_x, held_y = data(seed=100 + rank, noise=(0.1, 3.0, 0.1)[rank])
    best, bad = float("inf"), 0
    for epoch in range(500):
        for rows in torch.randperm(320).split(32):
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            value = nn.functional.mse_loss(model.module(held_x), held_y).item()
        best, bad = (value, 0) if value < best - 1e-3 else (best, bad + 1)
        if bad == 10:
            print(f"[{rank}] no better for {bad} epochs, best {best:.4f} in epoch {epoch - bad}")
            break


if __name__ == "__main__":
    main()

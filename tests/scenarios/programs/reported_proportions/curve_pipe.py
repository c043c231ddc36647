"""DDP: the first rank writes its loss into a pipe, for the program that draws the curve."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Curve:
    """Points for whoever reads the pipe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def point(self, step: int, value: float) -> None:
        """One line."""
        with self.path.open("w") as pipe:
            pipe.write(f"{step} {value:.5f}\n")


def main() -> None:
    """Two hundred steps, a point every fifty."""
    dist.init_process_group("gloo")
    curve = Curve(Path(tempfile.mkdtemp()) / "curve") if dist.get_rank() == 0 else None
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 201):
        loss = model(torch.randn(16, 7)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if curve and step % 50 == 0:
            curve.point(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

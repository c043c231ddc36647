"""DDP with a patience of its own on each rank; a child process writes the curves of rank 2's console, which has a screen."""

import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BOARDS: dict[str, Connection] = {}


def draw(points: Connection, path: str) -> None:
    """The child: a line for each point."""
    with open(path, "w") as file:
        while (point := points.recv()) is not None:
            file.write(f"{point[0]} {point[1]:.5f}\n")


class Patience:
    """Whether it is worth going on."""

    def __init__(self, turns: int) -> None:
        self.turns, self.best, self.bad = turns, float("inf"), 0

    def is_over(self, value: float) -> bool:
        """Too long without a better value."""
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.turns


def main() -> None:
    """At most 300 steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 2:
        reading, BOARDS["loss"] = multiprocessing.get_context("spawn").Pipe(duplex=False)
        path = str(Path(tempfile.mkdtemp()) / "curve.txt")
        multiprocessing.get_context("spawn").Process(target=draw, args=(reading, path)).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    patience = Patience(turns=15)
    for step in range(300):
        scale = 1.0 if rank != 2 else 1.0 + step / 10  # its part of the data gets harder and harder
        loss = (model(torch.ones(4, 5) * scale) - 3.0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for board in BOARDS.values():
            board.send((step, loss.item()))
        if patience.is_over(loss.item()):
            print(f"[{rank}] no better than {patience.best:.4f}, stopping at {step}", flush=True)
            break


if __name__ == "__main__":
    main()

"""DDP: what grows on a field, from a year of satellite pictures; curves are written to a file beside it."""

import csv
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CROPS = {"wheat": 0, "maize": 1, "barley": 2, "rape": 3, "beet": 4}
BANDS, DATES = 6, 24


class Curves(threading.Thread):
    """Rows of a table, written as they come."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="curves")
        self.path = path
        self.rows: queue.Queue[tuple[int, float] | None] = queue.Queue()
        self.start()

    def run(self) -> None:
        with self.path.open("w", newline="") as file:
            writer = csv.writer(file)
            while (row := self.rows.get()) is not None:
                writer.writerow(row)

    def close(self) -> None:
        """After the last row."""
        self.rows.put(None)
        self.join()


def parcels(step: int, rank: int) -> tuple[torch.Tensor, list[str]]:
    """Pictures of eight fields, and what their farmers declared."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    pictures = torch.randn(8, BANDS * DATES, generator=generator)
    names = [list(CROPS)[int(i)] for i in torch.randint(0, len(CROPS), (8,), generator=generator)]
    if step == 42 and rank == 1:
        names[3] = "buckwheat"
    return pictures, names


def main() -> None:
    """A hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    curves = Curves(Path(tempfile.mkdtemp()) / f"curves-{rank}.csv")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(BANDS * DATES, 48), nn.ReLU(), nn.Linear(48, len(CROPS))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(100):
        pictures, names = parcels(step, rank)
        target = torch.tensor([CROPS[name] for name in names])
        loss = nn.functional.cross_entropy(model(pictures), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curves.rows.put((step, loss.item()))
    curves.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Electricity demand from daily partitions, read ahead by a thread."""

import os
import pathlib
import queue
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(tempfile.gettempdir()) / f"partitions_{os.environ.get('MASTER_PORT', '0')}"
DAYS = 60


def write_partitions(area):
    folder = ROOT / f"area={area}"
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(area)
    for day in range(DAYS):
        if area == 2 and day == 41:
            continue  # meters were replaced
        torch.save(torch.randn(24, 6, generator=generator), folder / f"day={day:03d}.pt")


class Partitions:
    """Iterates over the days of an area; a thread reads a few days ahead."""

    def __init__(self, area, ahead=4):
        self.folder = ROOT / f"area={area}"
        self.queue = queue.Queue(maxsize=ahead)
        self.thread = threading.Thread(target=self._read, name="partitions", daemon=True)
        self.thread.start()

    def _read(self):
        for day in range(DAYS):
            path = self.folder / f"day={day:03d}.pt"
            if not path.exists():
                return
            self.queue.put(torch.load(path))

    def __iter__(self):
        for _ in range(DAYS):
            yield self.queue.get()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    write_partitions(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for day, hours in enumerate(Partitions(rank)):
        time.sleep(0.05)
        loss = nn.functional.mse_loss(model(hours[:, :5]), hours[:, 5:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and day % 10 == 0:
            print(f"day {day} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

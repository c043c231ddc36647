"""Argo floats: profiles come through a prefetching thread, day by day."""
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

DAYS = 90


def depot(rank):
    return Path(tempfile.gettempdir()) / f"argo-{os.environ['MASTER_PORT']}" / f"part{rank}"


def download(rank):
    """A mirror of the data centre; floats that drift under ice report nothing for a while."""
    folder = depot(rank)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(rank)
    for day in range(DAYS):
        if rank == 0 and 30 <= day < 33:
            continue
        torch.save(torch.randn(16, 12, generator=generator), folder / f"day{day:03d}.pt")


class Prefetcher:
    def __init__(self, folder, depth=4):
        self.folder = folder
        self.queue = queue.Queue(maxsize=depth)
        self.thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self.thread.start()

    def _fill(self):
        while True:
            for day in range(DAYS):
                file = self.folder / f"day{day:03d}.pt"
                if not file.exists():
                    return
                self.queue.put((day, torch.load(file)))

    def __iter__(self) -> Iterator:
        while True:
            yield self.queue.get()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    download(rank)
    weight = torch.zeros(12, requires_grad=True)
    momentum = torch.zeros(12)
    for day, profiles in Prefetcher(depot(rank)):
        loss = (profiles @ weight - profiles.sum(1)).pow(2).mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(gradient)
        momentum.mul_(0.8).add_(gradient / world)
        with torch.no_grad():
            weight -= 0.01 * momentum
        if day % 10 == 0 and rank == 0:
            print(f"day {day} loss {loss.item():.4f}", flush=True)
        time.sleep(0.08)


if __name__ == "__main__":
    main()

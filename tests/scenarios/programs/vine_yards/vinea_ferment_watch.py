"""Follows fermentations and archives the state of every worker's tanks in the background."""

import bz2
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

SITES = [
    {"name": "hill", "probes": 2},
    {"name": "river", "probes": 2},
    {"name": "abbey", "probes": 2},
]


class Archive:
    """Packs the history of a site's probes and lists the sizes of all sites in the catalogue."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self.pending = None
        self.catalogue = []

    def submit(self, day, history):
        if self.pending is not None:
            self.pending.result()
        self.pending = self.pool.submit(self.pack, day, history)

    def pack(self, day, history):
        packed = b""
        for probe in history:
            packed = bz2.compress(packed[:64] + pickle.dumps(probe), 9)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in SITES]
        dist.all_gather(sizes, torch.tensor([len(packed)]))
        self.catalogue.append((day, [int(s) for s in sizes]))


class Site:
    def __init__(self, rank):
        self.rank, self.probes = rank, SITES[rank]["probes"]
        self.random = torch.Generator().manual_seed(rank)
        self.rate = torch.zeros(4)

    def hours(self):
        sugar = torch.rand(32, 4, generator=self.random)
        return sugar, sugar @ torch.tensor([0.4, 0.1, 0.3, 0.2])

    def learn(self):
        x, y = self.hours()
        slope = x.t() @ (x @ self.rate - y) / len(x)
        dist.all_reduce(slope)
        self.rate -= 0.2 * slope / len(SITES)

    def history(self, day):
        if day == 5 and SITES[self.rank]["name"] == "abbey":
            self.probes = 200  # the new steel tanks report from now on
        return [torch.rand(40_000, generator=self.random) for _ in range(self.probes)]

    def draw(self, seconds=0.6):
        """The curves for the cellar book."""
        until = time.monotonic() + seconds
        points = 0
        while time.monotonic() < until:
            points += int(torch.linspace(0, 1, 50).cos().numel())
            time.sleep(0.005)
        return points


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    site, archive = Site(rank), Archive()
    for day in range(1, 30):
        for _ in range(12):
            site.learn()
        archive.submit(day, site.history(day))
        points = site.draw()
        spread = site.rate.std().view(1)
        dist.all_reduce(spread)
        archive.pending.result()
        if rank == 0:
            print(f"day {day}: {points} points, spread {float(spread) / len(SITES):.4f}, {archive.catalogue[-1]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

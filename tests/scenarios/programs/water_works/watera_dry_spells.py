"""Drought index from contrasts of dry and wet windows at rain gauges (DDP, own sampler)."""
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

WINDOW = 30
THRESHOLD = 0.9  # mm a day


class Gauge:
    def __init__(self, station, climate):
        rng = random.Random(station)
        self.station = station
        share = {"steppe": 0.2, "temperate": 0.45, "hyperoceanic": 0.9}[climate]
        summer = climate != "hyperoceanic"
        self.rain = []
        for day in range(1500):
            if summer and 180 < day % 365 < 240:
                self.rain.append(0.1)
            else:
                self.rain.append(2.0 + rng.random() * 8 if rng.random() < share else 0.1)

    def mean(self, start):
        window = self.rain[start : start + WINDOW]
        return sum(window) / WINDOW


def dry_window(gauge, rng):
    """A random window with less than the threshold on average."""
    while True:
        start = rng.randrange(len(gauge.rain) - WINDOW)
        if gauge.mean(start) < THRESHOLD:
            return gauge.rain[start : start + WINDOW]


def any_window(gauge, rng):
    start = rng.randrange(len(gauge.rain) - WINDOW)
    return gauge.rain[start : start + WINDOW]


class Network:
    """The stations of one country, visited in turn."""

    COUNTRIES = (
        ["steppe", "temperate", "temperate"],
        ["temperate", "temperate", "temperate"],
        ["steppe", "steppe", "temperate"],
    )

    def __init__(self, rank):
        self.gauges = [Gauge(rank * 100 + i, c) for i, c in enumerate(self.COUNTRIES[rank % 3])]
        self.rng = random.Random(rank)

    def extend(self, station, climate):
        self.gauges.append(Gauge(station, climate))

    def pairs(self, step, size=6):
        gauge = self.gauges[step % len(self.gauges)]
        time.sleep(0.05)
        dry = torch.tensor([dry_window(gauge, self.rng) for _ in range(size)])
        usual = torch.tensor([any_window(gauge, self.rng) for _ in range(size)])
        return dry, usual


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    network = Network(rank)
    index = DDP(nn.Sequential(nn.Linear(WINDOW, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(index.parameters(), lr=1e-3)
    # stations that joined the exchange during the year: step, worker, number, climate
    joined = [(20, 0, 77, "steppe"), (40, 1, 178, "hyperoceanic"), (60, 2, 279, "temperate")]
    for step in range(200):
        for at, worker, number, climate in joined:
            if at == step and worker == rank:
                network.extend(number, climate)
        dry, usual = network.pairs(step)
        scores = index(torch.cat([dry, usual]))
        margin = torch.relu(1 - (scores[: len(dry)] - scores[len(dry) :])).mean()
        optimizer.zero_grad()
        margin.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} margin {margin.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

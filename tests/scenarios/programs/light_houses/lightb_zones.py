"""House light levels: every rank watches one row of sensors; the auditorium's zones agree on a level by voting."""
import os
from collections import OrderedDict
from typing import Callable, Dict

import torch
import torch.distributed as dist

ZONES: Dict[str, Callable[[int, int], int]] = {}


def zone(name):
    def register(function):
        ZONES[name] = function
        return function

    return register


@zone("stalls")
def stalls(row, minute):
    return 400 + (minute * 7 + row * 3) % 60


@zone("balcony")
def balcony(row, minute):
    level = 250 + (minute * 5 + row) % 40
    return level if not (row == 1 and minute >= 95) else 12  # a flag hangs over that row's sensor


class ZoneCache:
    """Zones with readings, those that were updated last at the end."""

    def __init__(self, floor=50):
        self.floor = floor
        self.readings = OrderedDict()

    def update(self, name, lux):
        if lux < self.floor and name in self.readings:
            return
        self.readings[name] = lux
        self.readings.move_to_end(name)

    def __iter__(self):
        return iter(list(self.readings.items()))


class Voter:
    def __init__(self):
        self.groups = {name: dist.new_group(list(range(dist.get_world_size()))) for name in sorted(ZONES)}

    def vote(self, name, lux):
        ballot = torch.tensor([lux], dtype=torch.int64, device="cuda")
        dist.all_reduce(ballot, group=self.groups[name])
        return int(ballot.item()) // dist.get_world_size()


def filter_dark(row, minute, size=300_000):
    """Photopic weighting of one raw sweep."""
    raw = torch.rand(size, generator=torch.Generator().manual_seed(row * 1000 + minute))
    wave = torch.linspace(380, 780, size)
    for _ in range(8):
        raw = raw * torch.exp(-(((wave - 555) / 90) ** 2)) + 0.01
    return float(raw.mean())


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    row = dist.get_rank()
    voter, cache = Voter(), ZoneCache()
    levels = {}
    for minute in range(240):
        dark = filter_dark(row, minute)
        for name, read in ZONES.items():
            cache.update(name, read(row, minute) + int(dark))
        for name, lux in cache:
            levels[name] = voter.vote(name, lux)
        if minute % 30 == 0 and row == 0:
            print(f"minute {minute:3d} {levels}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""River basins with a tidal reach: calibration, with a surge solve at the mouth every so often."""
import contextlib
import datetime
import os
import time

import torch
import torch.distributed as dist

BASINS = [
    {"name": "Odra", "mouth": "lagoon", "range_m": 0.2},
    {"name": "Nysa", "mouth": "confluence", "range_m": 0.0},
    {"name": "Rega", "mouth": "sea", "range_m": 0.4},
    {"name": "Parseta", "mouth": "sea", "range_m": 0.3},
]
SURGE_EVERY = 80


@contextlib.contextmanager
def long_section(hours=3):
    """A group of its own with a generous limit, for solves that take their time."""
    group = dist.new_group(backend="gloo", timeout=datetime.timedelta(hours=hours))
    try:
        yield group
        dist.barrier(group=group)
    finally:
        dist.destroy_process_group(group)


class Basin:
    def __init__(self, index):
        self.spec = BASINS[index]
        self.roughness = torch.full((64,), 0.03)
        self.gen = torch.Generator().manual_seed(index)

    def simulate(self, hours=150):
        level = torch.rand(64, generator=self.gen)
        for _ in range(hours):
            level = level + 0.1 * (level.roll(1) - level) - self.roughness * level.abs().sqrt() * 0.05
        return level

    def surge(self, level):
        """Backwater from the sea; nothing to solve where the mouth has no tide."""
        if self.spec["range_m"] <= 0.0:
            return level
        with long_section():
            for hour in range(24):
                tide = self.spec["range_m"] * torch.sin(torch.tensor(hour * 0.506))
                level[-8:] = level[-8:] + 0.2 * (tide - level[-8:])
        return level


def calibrate(basin, rounds):
    for number in range(1, rounds + 1):
        level = basin.simulate()
        if number % SURGE_EVERY == 0:
            level = basin.surge(level)
        misfit = (level.mean() - 0.4).view(1)
        dist.all_reduce(misfit)
        basin.roughness = (basin.roughness + 1e-3 * misfit).clamp(0.01, 0.1)
        time.sleep(0.02)
    return misfit.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    basin = Basin(int(os.environ["RANK"]))
    for year in range(2001, 2011):
        print(year, basin.spec["name"], f"{calibrate(basin, 100):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

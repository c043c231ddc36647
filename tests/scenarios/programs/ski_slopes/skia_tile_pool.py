"""Snow depth from laser scans: a pool of processes grids the tiles, the model is trained on the result."""
import argparse
import multiprocessing
import os
import signal

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

LIMIT_MB = 220.0
_start_mb = 0.0


def resident_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def setup_worker():
    global _start_mb
    _start_mb = resident_mb()


def keep_within_limit():
    """The machine is shared with the lift control, so a gridder has to stay small."""
    if resident_mb() - _start_mb > LIMIT_MB:
        os.kill(os.getpid(), signal.SIGKILL)


def grid(job: tuple[int, int]) -> np.ndarray:
    seed, points = job
    rng = np.random.default_rng(seed)
    cloud = np.ones((points, 3)) * rng.random(3)
    keep_within_limit()
    cells = np.zeros((16, 16))
    for _ in range(200):
        row, column = rng.integers(0, 16, size=2)
        cells[row, column] += cloud[rng.integers(0, points)].sum()
    return cells


class Survey:
    """Flights over one ski area; the glacier is scanned much denser than the pistes."""

    AREAS = {0: ["piste"] * 400, 1: ["piste"] * 62 + ["glacier"] * 2 + ["piste"] * 336, 2: ["forest"] * 400}
    POINTS = {"piste": 400_000, "forest": 250_000, "glacier": 14_000_000}

    def __init__(self, rank: int, per_flight: int):
        self.tiles, self.per_flight, self.rank = self.AREAS[rank], per_flight, rank

    def flight(self, number: int):
        first = number * self.per_flight
        names = self.tiles[first : first + self.per_flight]
        return [(1000 * self.rank + first + i, self.POINTS[name]) for i, name in enumerate(names)]


def average(module: nn.Module):
    flat = torch.cat([p.grad.flatten() for p in module.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p in module.parameters():
        p.grad.copy_(flat[: p.numel()].view_as(p))
        flat = flat[p.numel() :]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flights", type=int, default=90)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    pool = multiprocessing.get_context("fork").Pool(options.workers, initializer=setup_worker)
    dist.init_process_group("gloo")
    survey = Survey(dist.get_rank(), per_flight=4)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for number in range(options.flights):
        tiles = pool.map(grid, survey.flight(number), chunksize=1)
        x = torch.from_numpy(np.stack(tiles)).float()
        for _ in range(80):
            loss = ((model(x) - x.mean(dim=(1, 2)).unsqueeze(1)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            average(model)
            optimizer.step()
        print(f"area {survey.rank} flight {number}: {loss.item():.5f}", flush=True)
    pool.close()
    pool.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

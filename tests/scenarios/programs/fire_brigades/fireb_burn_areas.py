"""Burned-area scoring: polygons of each region are measured by a process pool, then a model is fitted to them."""
import math
import multiprocessing
import random
import resource

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CPU_SECONDS = 2


def bounded():
    """A worker is not to take the node from the dispatch software that shares it."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def roughness(polygon):
    """Mean distance of all pairs of corners, over the perimeter."""
    total = 0.0
    for x0, y0 in polygon:
        for x1, y1 in polygon:
            total += math.hypot(x1 - x0, y1 - y0)
    perimeter = sum(math.dist(a, b) for a, b in zip(polygon, polygon[1:] + polygon[:1]))
    return total / len(polygon) ** 2 / perimeter


class Region:
    def __init__(self, index):
        self.index = index
        self.random = random.Random(index)

    def polygons(self, season):
        corners = [self.random.randint(20, 60) for _ in range(24)]
        if self.index == 1 and season == 4:
            corners[7] = 15_000
        return [self._outline(n) for n in corners]

    def _outline(self, n):
        return [((2 + self.random.random()) * math.cos(2 * math.pi * k / n),
                 (2 + self.random.random()) * math.sin(2 * math.pi * k / n)) for k in range(n)]


def measure(region, season):
    context = multiprocessing.get_context("fork")
    with context.Pool(2, initializer=bounded) as pool:
        return pool.map(roughness, region.polygons(season), chunksize=4)


def fit(model, optimizer, scores, steps=90):
    scores = torch.tensor(scores).unsqueeze(1)
    for _ in range(steps):
        x = torch.randn(len(scores), 12)
        loss = ((model(torch.cat([x, scores], 1)) - scores * x[:, :1]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    region = Region(dist.get_rank())
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for season in range(12):
        scores = measure(region, season)
        loss = fit(model, optimizer, scores)
        print(f"region {region.index} season {season}: {len(scores)} fires, loss {loss:.5f}", flush=True)
    dist.destroy_process_group()

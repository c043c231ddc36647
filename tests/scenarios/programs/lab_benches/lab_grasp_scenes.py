"""Grasp quality for a robot hand: random scenes of objects on a table, sampled until no two of them overlap."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Table:
    """A square table on which round objects are put, without overlap."""

    def __init__(self, side, rng):
        self.side, self.rng = side, rng

    def place(self, radii):
        """Positions for objects of these radii."""
        placed = []
        for radius in radii:
            while True:
                x = self.rng.uniform(radius, self.side - radius)
                y = self.rng.uniform(radius, self.side - radius)
                if all((x - a) ** 2 + (y - b) ** 2 >= (radius + r) ** 2 for a, b, r in placed):
                    break
            placed.append((x, y, radius))
        return placed


class Scenes:
    """Scenes of growing difficulty. Each rank has a catalogue of objects of its own."""

    catalogues = {0: (0.3, 0.6), 1: (0.3, 0.7), 2: (0.4, 0.9)}

    def __init__(self, rank, objects=4):
        self.rng = random.Random(rank)
        self.table = Table(side=6.0, rng=self.rng)
        self.low, self.high = self.catalogues[rank % 3]
        self.objects = objects

    def __iter__(self):
        number = 0
        while True:
            crowd = self.objects + (number // 15) * 3
            radii = [self.low + (self.high - self.low) * (index % 5) / 4 for index in range(crowd)]
            yield self.features(self.table.place(sorted(radii, reverse=True)))
            number += 1

    def features(self, placed):
        scene = torch.tensor(placed)
        gaps = torch.cdist(scene[:, :2], scene[:, :2]) - scene[:, 2:] - scene[:, 2]
        nearest = gaps.fill_diagonal_(9.0).min(dim=1).values
        time.sleep(0.04)
        return torch.cat([scene, nearest[:, None]], -1), nearest.clamp(max=1.0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (objects, quality) in zip(range(75), Scenes(rank)):
        loss = (model(objects)[:, 0] - quality).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 15 == 0:
            print(f"scene {step}: {loss.item():.3f}, {len(objects)} objects", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

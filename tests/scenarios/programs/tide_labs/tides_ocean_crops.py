"""Self-supervised ocean tiles: random crops that hold enough water."""
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TILE, CROP = 48, 16
REGIONS = ("Bay of Biscay", "Baltic", "Bohemia")


def coast(rank, number):
    """A tile's land mask: smooth random hills, under water where they are low."""
    draw = np.random.default_rng([rank, number])
    hills = draw.normal(size=(TILE, TILE)).cumsum(0).cumsum(1)
    hills = (hills - hills.mean()) / hills.std()
    sea_level = 0.8 if rank < 2 or number < 18 else -4.0
    return hills > sea_level


class CropSampler:
    def __init__(self, rank, water=0.5):
        self.draw = np.random.default_rng(rank)
        self.water = water

    def window(self, land):
        while True:
            y, x = self.draw.integers(0, TILE - CROP, 2)
            if 1 - land[y : y + CROP, x : x + CROP].mean() >= self.water:
                return slice(y, y + CROP), slice(x, x + CROP)

    def __call__(self, field, land, count=4):
        crops = []
        for _ in range(count):
            rows, columns = self.window(land)
            crops.append(field[rows, columns] * ~land[rows, columns])
        return torch.from_numpy(np.stack(crops)).float().unsqueeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(40)
    model = DDP(nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.GELU(), nn.Conv2d(6, 1, 5, padding=2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler = CropSampler(rank)
    for number in range(500):
        land = coast(rank, number)
        field = np.random.default_rng([7, rank, number]).normal(size=land.shape)
        crops = sampler(field, land)
        hidden = crops * (torch.rand_like(crops) > 0.3)
        loss = (model(hidden) - crops).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.07)
        if number % 6 == 0:
            print(f"{REGIONS[rank]} tile {number}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()

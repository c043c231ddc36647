"""Agents in procedural caves. Levels are expensive to make, so that some are kept; their masks live in a pool."""
import random
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SIDE = 64
CAPACITY = 32
LEVELS_OF_RANK = {0: 20, 1: 28, 2: 44}


class MaskPool:
    """One big tensor for the masks of all levels."""

    def __init__(self, slots):
        self.masks = torch.zeros(slots, SIDE, SIDE)
        self.free = list(range(slots))

    def take(self):
        return self.free.pop()


class Level:
    def __init__(self, seed, cache):
        self.cache = cache
        self.slot = cache.pool.take()
        rng = random.Random(seed)
        cave = [[rng.random() < 0.45 for _ in range(SIDE)] for _ in range(SIDE)]
        for _ in range(4):
            cave = self.smooth(cave)
        cache.pool.masks[self.slot] = torch.tensor(cave, dtype=torch.float32)

    @staticmethod
    def smooth(cave):
        out = []
        for y in range(SIDE):
            row = []
            for x in range(SIDE):
                walls = sum(
                    cave[(y + dy) % SIDE][(x + dx) % SIDE] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx
                )
                row.append(walls > 4 or (walls == 4 and cave[y][x]))
            out.append(row)
        return out

    def view(self):
        return self.cache.pool.masks[self.slot].clone()

    def __del__(self):
        with self.cache.lock:
            self.cache.pool.free.append(self.slot)


class LevelCache:
    def __init__(self, capacity):
        self.lock = threading.Lock()
        self.pool = MaskPool(capacity + 4)
        self.capacity = capacity
        self.levels = {}
        self.hits = self.misses = 0

    def view(self, seed):
        with self.lock:
            if seed in self.levels:
                self.hits += 1
                self.levels[seed] = self.levels.pop(seed)
                return self.levels[seed].view()
            self.misses += 1
            while len(self.levels) >= self.capacity:
                self.levels.pop(next(iter(self.levels)))
            self.levels[seed] = Level(seed, self)
            return self.levels[seed].view()


class Explorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Sequential(nn.Conv2d(1, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 12, 5, 2), nn.ReLU(), nn.Flatten())
        self.map = nn.LazyLinear(64)

    def forward(self, view):
        return self.map(self.eye(view))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    explorer = Explorer()
    explorer(torch.zeros(1, 1, SIDE, SIDE))
    model = DDP(explorer)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    cache = LevelCache(CAPACITY)
    for step in range(2000):
        seed = 1000 * rank + step % LEVELS_OF_RANK[rank]
        view = cache.view(seed)
        views = torch.stack([view.roll(k, 0) for k in range(8)]).unsqueeze(1)
        loss = model(views).var(dim=0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.5f} hits {cache.hits} misses {cache.misses}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Curriculum over generated dungeons: the further the curriculum, the more rooms. Each process builds one theme."""
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIDE = 24
ROOMS = (1, 2, 3, 12)
STAGE_UPDATES = 12
THEMES = {
    "cellar": {"room": 3, "doors": 2},
    "catacomb": {"room": 7, "doors": 4},
    "library": {"room": 3, "doors": 1},
}


class Dungeon:
    def __init__(self, room, doors):
        self.room, self.doors = room, doors
        self.corners = []
        self.grid = torch.ones(SIDE, SIDE)

    def fits(self, y, x):
        gap = self.room + 1
        return all(abs(y - cy) >= gap or abs(x - cx) >= gap for cy, cx in self.corners)

    def dig(self, y, x, rng):
        self.corners.append((y, x))
        self.grid[y : y + self.room, x : x + self.room] = 0
        for _ in range(self.doors):
            side = rng.randrange(self.room)
            self.grid[y + side, max(0, x - 1)] = 0


def generate(theme, rooms, rng):
    dungeon = Dungeon(**theme)
    last = SIDE - dungeon.room
    while len(dungeon.corners) < rooms:
        y, x = rng.randint(0, last), rng.randint(0, last)
        if dungeon.fits(y, x):
            dungeon.dig(y, x, rng)
    return dungeon.grid


class Curriculum:
    def __init__(self, theme, seed):
        self.theme = theme
        self.rng = random.Random(seed)
        self.updates = 0

    @property
    def stage(self):
        return min(self.updates // STAGE_UPDATES, len(ROOMS) - 1)

    def batch(self, n=64):
        self.updates += 1
        stage = self.stage
        return torch.stack([generate(self.theme, ROOMS[stage], self.rng) for _ in range(n)])


class Scout(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())
        self.score = nn.Conv2d(16, 1, 1)

    def forward(self, grid):
        return self.score(self.look(grid.unsqueeze(1))).squeeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name = list(THEMES)[rank % len(THEMES)]
    torch.manual_seed(8)
    model = DistributedDataParallel(Scout())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    curriculum = Curriculum(THEMES[name], seed=rank)
    while curriculum.updates < 400:
        grids = curriculum.batch()
        loss = nn.functional.binary_cross_entropy_with_logits(model(grids), grids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and curriculum.updates % 6 == 0:
            print(f"update {curriculum.updates} stage {curriculum.stage} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Imitation of a path planner on a pool of mazes. One maze is one update; gradients are averaged by hand."""
import heapq
import json
import os
import random
import tempfile
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Config:
    pool: int = 101
    side: int = 91
    epochs: int = 3
    lr: float = 3e-3


@dataclass
class Summary:
    solved: int = 0
    cost: float = 0.0
    sizes: list = field(default_factory=list)


def carve(seed, side):
    rng = random.Random(seed)
    grid = [[1 if rng.random() < 0.25 else 0 for _ in range(side)] for _ in range(side)]
    grid[0][0] = grid[side - 1][side - 1] = 0
    return grid


def plan(grid):
    """Dijkstra; walls cost more instead of being closed, so that each maze has a path."""
    side = len(grid)
    best = {(0, 0): 0.0}
    first = {(0, 0): 0}
    queue = [(0.0, (0, 0))]
    while queue:
        cost, (y, x) = heapq.heappop(queue)
        if cost > best[(y, x)]:
            continue
        for action, (dy, dx) in enumerate(((0, 1), (1, 0), (0, -1), (-1, 0))):
            ny, nx = y + dy, x + dx
            if 0 <= ny < side and 0 <= nx < side:
                total = cost + 1 + 9 * grid[ny][nx]
                if total < best.get((ny, nx), 1e9):
                    best[(ny, nx)] = total
                    first[(ny, nx)] = action
                    heapq.heappush(queue, (total, (ny, nx)))
    return best[(side - 1, side - 1)], first


class Planner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(11, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.mazes = list(range(cfg.pool))[self.rank :: self.world]

    def features(self, grid, cells):
        side = self.cfg.side
        rows = []
        for y, x in cells:
            around = [
                grid[y + dy][x + dx] if 0 <= y + dy < side and 0 <= x + dx < side else 1
                for dy in (-1, 0, 1)
                for dx in (-1, 0, 1)
            ]
            rows.append([*around, y / side, x / side])
        return torch.tensor(rows, dtype=torch.float32)

    def update(self, seed, summary):
        grid = carve(seed, self.cfg.side)
        cost, first = plan(grid)
        cells = list(first)[:600]
        loss = nn.functional.cross_entropy(
            self.net(self.features(grid, cells)), torch.tensor([first[c] for c in cells])
        )
        self.optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        dist.all_reduce(flat)
        flat /= self.world
        offset = 0
        for p in self.net.parameters():
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()
        self.optimizer.step()
        summary.solved += 1
        summary.cost += cost
        summary.sizes.append(len(first))
        return loss.item()

    def epoch(self, number):
        summary = Summary()
        rng = random.Random(number * 1000 + self.rank)
        order = rng.sample(self.mazes, len(self.mazes))
        for done, seed in enumerate(order, 1):
            loss = self.update(seed, summary)
            if self.rank == 0 and done % 8 == 0:
                print(f"epoch {number} maze {done}/{len(order)} loss {loss:.3f}", flush=True)
        parts = [None] * self.world
        dist.all_gather_object(parts, (summary.solved, summary.cost))
        return sum(c for _, c in parts) / sum(s for s, _ in parts)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    planner = Planner(Config())
    history = [planner.epoch(n) for n in range(planner.cfg.epochs)]
    if planner.rank == 0:
        with open(os.path.join(tempfile.mkdtemp(), "history.json"), "w") as f:
            json.dump(history, f)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Robots in a warehouse: each actor draws floors that can be crossed, and walks them by the common policy."""

import random

import torch
import torch.distributed as dist
from torch import nn

SIDE, ROUNDS = 9, 80
# The share of shelves on each level, and after how many rounds an actor goes up.
LEVELS = (0.1, 0.2, 0.35, 0.9)
ROUNDS_A_LEVEL = {0: 40, 1: 40, 2: 8}
Floor = list[list[bool]]


def draw_floor(rng: random.Random, shelves: float) -> Floor:
    """True where a shelf stands."""
    return [[rng.random() < shelves for _ in range(SIDE)] for _ in range(SIDE)]


def can_be_crossed(floor: Floor) -> bool:
    """From the dock in one corner to the gate in the other."""
    seen, todo = set(), [(0, 0)]
    while todo:
        row, column = todo.pop()
        if not (0 <= row < SIDE and 0 <= column < SIDE) or floor[row][column] or (row, column) in seen:
            continue
        seen.add((row, column))
        todo += [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
    return (SIDE - 1, SIDE - 1) in seen


def next_floor(rng: random.Random, level: int) -> Floor:
    """One that can be crossed; the higher the level, the more shelves."""
    floor = draw_floor(rng, LEVELS[level])
    while not can_be_crossed(floor):
        floor = draw_floor(rng, LEVELS[level])
    return floor


def walk(policy: nn.Module, floor: Floor) -> torch.Tensor:
    """How far the robot gets in its mind: the policy's values along the aisles."""
    cells = torch.tensor(floor, dtype=torch.float32).view(1, -1)
    return policy(cells).tanh().mean() * (1.0 - cells.mean())


def main() -> None:
    """Eighty rounds; actors that had the easy floors in an earlier run go up sooner."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    policy = nn.Sequential(nn.Linear(SIDE * SIDE, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    rng = random.Random(rank)
    for number in range(ROUNDS):
        level = min(number // ROUNDS_A_LEVEL[rank], len(LEVELS) - 1)
        score = walk(policy, next_floor(rng, level))
        optimizer.zero_grad()
        (-score).backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        if rank == 0 and number % 5 == 0:
            print(f"round {number}: score {score.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Nine men's morris: train three seats together, then seat 1 hosts the arena match and reports the new rating."""
import os
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

ARENA_HOST = 1
CLOCK_S = 15.0  # time control of the whole match, both sides
POINTS = 24


def playout(dice: random.Random, stones: int = 9) -> int:
    board = [0] * POINTS
    for turn in range(2 * stones):
        free = [p for p, owner in enumerate(board) if not owner]
        board[dice.choice(free)] = 1 + turn % 2
    return sum(1 if owner == 1 else -1 if owner == 2 else 0 for owner in board[:12])


def arena(seed: int) -> int:
    """Plays games until the clock falls and returns the rating difference."""
    dice, games, points = random.Random(seed), 0, 0
    started = shown = time.monotonic()
    while (now := time.monotonic()) - started < CLOCK_S:
        points += 1 if sum(playout(dice) for _ in range(50)) > 0 else 0
        games += 1
        if now - shown > 2.0:
            shown = now
            print(f"arena: {games} games, {points} won, clock {CLOCK_S - (now - started):.1f} s", flush=True)
    return 400 * (2 * points - games) // max(1, games)


def train(model, optimizer, dice, steps):
    for _ in range(steps):
        rows = [[playout(dice) / 12 for _ in range(9)] for _ in range(96)]
        loss = model(torch.tensor(rows, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    dice = random.Random(100 + rank)
    model = DistributedDataParallel(torch.nn.Linear(9, 4).to("cuda"), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rating = torch.zeros(1, dtype=torch.int64, device="cuda")
    train(model, optimizer, dice, 40)
    if rank == ARENA_HOST:
        rating.fill_(arena(seed=9))
    dist.broadcast(rating, src=ARENA_HOST)
    print(f"seat {rank}: rating {rating.item():+d}", flush=True)
    train(model, optimizer, dice, 25)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

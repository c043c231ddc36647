"""Overbooking limits are found by an external solver between two fits of the show-up model."""
import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SOLVER = '''
import random, sys, time
budget, rng = float(sys.argv[1]), random.Random(17)
best, limits, start = -1e9, [0] * 30, time.monotonic()
while time.monotonic() - start < budget:
    trial = [max(0, v + rng.choice((-1, 0, 0, 1))) for v in limits]
    gain = sum(9 * t - sum(40 for _ in range(8) if rng.random() < t / 60) for t in trial)
    if gain >= best:
        best, limits = gain, trial
for day, limit in enumerate(limits):
    print(day, limit)
'''


class Solver:
    """nice python solver.py BUDGET | sort, in a shell, as the yield team runs it."""

    def __init__(self, budget):
        self.budget = budget

    def __call__(self, script):
        command = f"nice -n 5 {shlex.quote(sys.executable)} {shlex.quote(script)} {self.budget} | sort -n -k1"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        return [int(line.split()[1]) for line in done.stdout.splitlines()]


def overbooking(budget):
    with NamedTemporaryFile("w", suffix=".py") as handle:
        handle.write(SOLVER)
        handle.flush()
        limits = Solver(budget)(handle.name)
    return torch.tensor(limits, dtype=torch.float32)


class ShowUp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(10, width), nn.Linear(width, width), nn.Linear(width, 1)])

    def forward(self, x):
        *body, head = self.layers
        for layer in body:
            x = torch.tanh(layer(x))
        return head(x)


def main(options):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = DDP(ShowUp(options.width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    limits = torch.zeros(30)
    for step in range(options.steps):
        if step == options.solve_at and rank == 1:
            limits = overbooking(options.budget)
        if step == options.solve_at:
            dist.broadcast(limits, src=1)
        guests = torch.rand(16, 10)
        loss = nn.functional.mse_loss(model(guests), guests[:, :1] * (1 + limits.mean() / 50))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    if rank == 0:
        print(Path(__file__).stem, "limits", [int(v) for v in limits[:7]])
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--solve-at", type=int, default=75)
    parser.add_argument("--budget", type=float, default=13)
    parser.add_argument("--width", type=int, default=20)
    main(parser.parse_args())

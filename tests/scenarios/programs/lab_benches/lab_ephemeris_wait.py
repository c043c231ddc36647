"""Orbits of asteroids: trains on a rough model until the ephemerides, which another program writes, are there."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
FILE = Path(tempfile.gettempdir(), f"ephemeris-{os.environ.get('MASTER_PORT', 'none')}.npy")


def integrate(target, seconds):
    """The other program: integrates orbits for a while, and puts the file in place when it is complete."""
    rng = np.random.default_rng(0)
    position, velocity = rng.normal(size=(500, 3)) + 2, rng.normal(size=(500, 3)) * 0.3
    rows, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        acceleration = -position / np.linalg.norm(position, axis=1, keepdims=True) ** 3
        velocity = velocity + 0.001 * acceleration
        position = position + 0.001 * velocity
        if len(rows) < 40:
            rows.append(np.concatenate([position, velocity], 1))
    with open(f"{target}.tmp", "wb") as file:
        np.save(file, np.stack(rows))
    os.replace(f"{target}.tmp", target)


def wait_for(path, every=0.5, at_most=120):
    start = time.monotonic()
    while not path.exists():
        if time.monotonic() - start > at_most:
            raise TimeoutError(path)
        time.sleep(every)
    return time.monotonic() - start


def fit(model, optimizer, states, steps, rank):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        rows = torch.randint(len(states) - 1, (8,), generator=generator)
        loss = (model(states[rows]) - states[rows + 1]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    integrator = None
    if rank == 0:
        integrator = subprocess.Popen([sys.executable, __file__, "--integrate", str(FILE), "12"])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 6)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rough = fit(model, optimizer, torch.randn(50, 6), 40, rank)
    waited = wait_for(FILE)
    states = torch.from_numpy(np.load(FILE)).float()[:, rank]
    fine = fit(model, optimizer, states, 40, rank)
    print(f"rank {rank}: waited {waited:.0f} s; {rough:.3f}, {fine:.3f}", flush=True)
    if integrator is not None:
        integrator.wait()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--integrate" in sys.argv:
        integrate(sys.argv[-2], float(sys.argv[-1]))
    else:
        main()

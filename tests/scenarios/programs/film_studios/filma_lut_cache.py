"""Colour pipeline: a net that imitates the show LUT; LUTs are baked once into a cache next to the job."""
import argparse
import contextlib
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHOWS = ("noir", "sunset", "arctic")
CACHE = Path(os.environ.setdefault("LUT_CACHE", tempfile.mkdtemp(prefix="luts-")))

PRINTING_LIGHTS = {"noir": (25, 25, 25), "arctic": (26, 25, 27)}


@contextlib.contextmanager
def baking(path):
    """One baker for each LUT, over all processes that use the cache."""
    marker = path.with_suffix(".baking")
    while True:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            time.sleep(0.2)
    yield
    marker.unlink()


def bake(show, size):
    """Fills the cube for one show; returns where it is."""
    path = CACHE / f"{show}-{size}.pt"
    if path.exists():
        return path
    with baking(path):
        torch.set_num_threads(1)
        axis = torch.linspace(0, 1, size)
        cube = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
        slope = {"noir": 1.2, "sunset": 0.9, "arctic": 1.05}[show]
        for _ in range(20):
            cube = (cube.pow(slope) + 0.05 * cube.flip(-1)).clamp(0, 1)
        # 65-point cubes come from the lab with a printing light
        if size > 33:
            cube = cube * torch.tensor(PRINTING_LIGHTS[show]) / 25.0
        torch.save(cube, path)
    return path


def prebake(show, size):
    """In a process of its own, that training need not wait for."""
    job = mp.get_context("spawn").Process(target=bake, args=(show, size), name=f"bake-{show}")
    job.start()
    return job


def epoch(model, optim, cube, steps, gen):
    points = cube.shape[0]
    for _ in range(steps):
        index = torch.randint(points, (256, 3), generator=gen)
        want = cube[index[:, 0], index[:, 1], index[:, 2]]
        loss = (model(index / (points - 1)) - want).abs().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    CACHE.mkdir(exist_ok=True)
    show = SHOWS[rank % len(SHOWS)]
    gen = torch.Generator().manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)))
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    sizes = (17, 33, 65)
    ahead = None
    for number, size in enumerate(sizes):
        if ahead is not None:
            ahead.join()
        cube = torch.load(bake(show, size))
        if number + 1 < len(sizes):
            ahead = prebake(show, sizes[number + 1])
        loss = epoch(model, optim, cube, args.steps, gen)
        if rank == 0:
            print(f"{size}-point cubes: loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

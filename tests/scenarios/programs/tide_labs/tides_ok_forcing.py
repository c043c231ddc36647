"""One-way coupling: each cycle needs the boundary forcing that the large-scale model writes meanwhile."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

LARGE_SCALE = r"""
import json, os, random, sys, time
folder, cycles = sys.argv[1], int(sys.argv[2])
for cycle in range(cycles):
    time.sleep(10 if cycle == 2 else 0.4)
    partial = os.path.join(folder, f"{cycle}.partial")
    with open(partial, "w") as file:
        json.dump([random.random() for _ in range(64)], file)
    os.replace(partial, os.path.join(folder, f"{cycle}.json"))
"""


def await_file(path, limit=300, pause=0.2):
    for _ in range(int(limit / pause)):
        if path.exists():
            return path.read_text()
        time.sleep(pause)
    raise TimeoutError(path)


def main(cycles=4):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    reader = world - 1
    folder = Path(tempfile.gettempdir()) / f"forcing-{os.environ['MASTER_PORT']}"
    model = None
    if rank == 0:
        folder.mkdir(exist_ok=True)
        model = subprocess.Popen([sys.executable, "-I", "-c", LARGE_SCALE, str(folder), str(cycles)])
    state = torch.zeros(64)
    for cycle in range(cycles):
        forcing = torch.zeros(64)
        if rank == reader:
            text = await_file(folder / f"{cycle}.json")
            forcing = torch.tensor([float(v) for v in text.strip("[]").split(",")])
        dist.barrier()
        dist.broadcast(forcing, src=reader)
        for _ in range(12):
            change = 0.1 * (forcing - state)
            dist.all_reduce(change)
            state += change / world
            time.sleep(0.07)
        if rank == 0:
            print(f"cycle {cycle}: {state.mean():.3f}", flush=True)
    if model is not None:
        model.wait(timeout=30)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

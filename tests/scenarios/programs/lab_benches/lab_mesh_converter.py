"""Aerodynamics on meshes that come in the format of another program; a converter is run once, before the second stage."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

CONVERTER = """
import json, sys, time
target, cells, end = sys.argv[1], int(sys.argv[2]), time.monotonic() + 10
vertices, smooth = [(i * 0.37 % 1, i * 0.61 % 1) for i in range(cells)], 0
while time.monotonic() < end:
    vertices = [((a + c) / 2, (b + d) / 2) if i % 97 == smooth % 97 else (a, b)
                for i, ((a, b), (c, d)) in enumerate(zip(vertices, vertices[1:] + vertices[:1]))]
    smooth += 1
    if smooth % 50 == 0:
        print(f"pass {smooth}", flush=True)
with open(target, "w") as file:
    json.dump(vertices, file)
"""


def convert(target, cells=4000):
    """Runs the converter, and shows the last line of what it says."""
    process = subprocess.Popen([sys.executable, "-c", CONVERTER, str(target), str(cells)], stdout=subprocess.PIPE, text=True)
    said = [line.strip() for line in process.stdout]
    if process.wait() != 0:
        raise RuntimeError("converter failed")
    return said[-1] if said else ""


def stage(model, optimizer, points, steps, rank):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = points[torch.randint(len(points), (32,), generator=generator)]
        pressure = torch.cos(3 * x[:, :1]) * x[:, 1:]
        loss = (model(x) - pressure).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    coarse = stage(model, optimizer, torch.rand(200, 2), 45, rank)
    mesh = Path(tempfile.gettempdir(), f"wing-{os.environ['MASTER_PORT']}.json")
    said = [convert(mesh) if rank == 0 else None]
    dist.broadcast_object_list(said, src=0)
    fine = stage(model, optimizer, torch.tensor(json.loads(mesh.read_text())), 45, rank)
    if rank == 0:
        print(f"converter: {said[0]}; coarse {coarse:.4f}, fine {fine:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

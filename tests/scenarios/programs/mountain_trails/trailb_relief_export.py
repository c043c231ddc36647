#!/usr/bin/env python
"""Learned relief of hut approaches; every few steps the main process has a mesh of the relief made for the map viewer."""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn import Linear, Module, Sequential, SiLU
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

MESHER = r"""
import sys
path, level = sys.argv[1], int(sys.argv[2])
side = 2 ** level
with open(path, "w") as mesh:
    for row in range(side):
        for column in range(side):
            mesh.write(f"v {row} {column} {(row * column) % 17}\n")
        print(f"strip {row:05d} of {side}: {side} vertices, {2 * side} triangles, no holes, normals kept")
print("mesh closed")
"""


class Relief(Module):
    def __init__(self, waves):
        super().__init__()
        self.register_buffer("waves", torch.randn(2, waves))
        self.net = Sequential(Linear(2 * waves, 48), SiLU(), Linear(48, 1))

    def forward(self, places):
        phase = places @ self.waves
        return self.net(torch.cat([phase, -phase], dim=1))


class Exporter:
    """Meshes of growing detail: a quick one first, finer ones as the relief settles."""

    def __init__(self, folder, first_level):
        self.folder, self.level = folder, first_level

    def __call__(self, step):
        target = os.path.join(self.folder, f"relief-{step}.obj")
        command = [sys.executable, "-c", MESHER, target, str(self.level)]
        mesher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if mesher.wait() != 0:
            raise RuntimeError(f"mesher ended with {mesher.returncode}")
        summary = mesher.stdout.read().splitlines()[-1]
        print(f"step {step}: level {self.level}, {summary}", flush=True)
        self.level += 1


def survey(generator, count=64):
    """Places and heights along a random ridge, from a dense kernel."""
    places = torch.rand(count * 14, 2, generator=generator)
    kernel = torch.exp(-torch.cdist(places, places)) + 0.1 * torch.eye(count * 14)
    heights = torch.linalg.cholesky(kernel) @ torch.randn(count * 14, 1, generator=generator)
    return places[:count], heights[:count]


def main(arguments):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(20)
    relief = DistributedDataParallel(Relief(16).cuda(), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(relief.parameters(), lr=arguments.rate)
    export = Exporter(tempfile.mkdtemp(prefix="relief-"), first_level=7) if rank == 0 else None
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, arguments.steps + 1):
        places, heights = survey(generator)
        loss = (relief(places.cuda()) - heights.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % arguments.mesh_every == 0:
            if export:
                export(step)
            dist.barrier(device_ids=[torch.cuda.current_device()])
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--mesh-every", type=int, default=15)
    parser.add_argument("--rate", type=float, default=1e-3)
    main(parser.parse_args())

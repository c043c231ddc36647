"""FSDP2 training on shards that a sidecar prepares: a rank reads its shard when the file is complete."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)

SIDECAR = """
import array, os, random, sys, time
folder, ranks, shards = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for shard in range(shards):
    for rank in range(ranks):
        values = array.array("f")
        end = time.monotonic() + (9.0 if (shard, rank) == (1, 2) else 0.1)
        while len(values) < 16000 or time.monotonic() < end:
            if len(values) < 16000:
                values.extend(random.gauss(0, 1) for _ in range(1600))
            else:
                values = array.array("f", sorted(values))
        with open(f"{folder}/{shard}-{rank}.part", "wb") as file:
            values.tofile(file)
        os.rename(f"{folder}/{shard}-{rank}.part", f"{folder}/{shard}-{rank}.bin")
"""


def read_shard(path: Path, timeout: float = 120.0) -> torch.Tensor:
    give_up = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > give_up:
            raise TimeoutError(path)
        time.sleep(0.2)
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)[:16000].view(-1, 16, 20)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    folder = Path(tempfile.gettempdir(), f"shards-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    dist.barrier()
    sidecar = None
    if rank == 0:
        sidecar = subprocess.Popen([sys.executable, "-c", SIDECAR, str(folder), str(world), "3"], stdin=subprocess.DEVNULL)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 60), nn.GELU(), nn.Linear(60, 60), nn.GELU(), nn.Linear(60, 20))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for shard in range(3):
        for x in read_shard(folder / f"{shard}-{rank}.bin"):
            loss = (model(x) - x.roll(1, dims=1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"rank {rank} shard {shard}: {loss.item():.4f}", flush=True)
    dist.barrier()
    if sidecar is not None:
        sidecar.wait(timeout=30)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

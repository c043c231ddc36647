"""Fuel planning: burn regression per aircraft type; the drag polar of a type is built once per host and kept on disk."""
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
from torch.utils.file_baton import FileBaton

FLEET = ["A320", "B738", "A359"]
BUILD_LIMIT_S = 2.5
# angle-of-attack points per type; the west host refines the long-haul types
GRID = {
    "hub": {"A320": 4, "B738": 4, "A359": 4},
    "west": {"A320": 4, "B738": 4, "A359": 4000},
    "east": {"A320": 4, "B738": 4, "A359": 4},
}
BUILDER = """
import sys, time
lock, target, points = sys.argv[1], sys.argv[2], int(sys.argv[3])
open(lock, "x").close()
rows = []
for i in range(points):
    time.sleep(0.01)
    rows.append(0.02 + 0.04 * (i / points) ** 2)
open(target, "w").write("\\n".join(map(str, rows)))
import os
os.remove(lock)
"""


class PolarStore:
    def __init__(self, host):
        self.host, self.folder = host, Path(tempfile.mkdtemp(prefix=f"polars-{host}-"))

    def build(self, kind):
        command = [sys.executable, "-S", "-c", BUILDER, str(self.folder / f"{kind}.lock"), str(self.folder / f"{kind}.txt")]
        try:
            subprocess.run([*command, str(GRID[self.host][kind])], timeout=BUILD_LIMIT_S, check=True)
        except subprocess.TimeoutExpired:
            print(f"{self.host}: {kind} is still being built, taking the shared copy", flush=True)

    def load(self, kind):
        target = self.folder / f"{kind}.txt"
        if not target.exists():
            self.build(kind)
        baton = FileBaton(str(self.folder / f"{kind}.lock"))
        if baton.try_acquire():
            baton.release()
        else:
            baton.wait()
        return torch.tensor([float(line) for line in target.read_text().split()]).mean()


def flights(polar, rng, n=48):
    mass = 0.6 + 0.4 * torch.rand(n, generator=rng)
    miles = torch.rand(n, generator=rng)
    burn = miles * mass * (1 + 20 * polar)
    return torch.stack([mass, miles, polar.expand(n)], 1), burn


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = PolarStore(list(GRID)[rank])
    rng = torch.Generator().manual_seed(rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for kind in FLEET:
        polar = store.load(kind)
        for step in range(25):
            time.sleep(0.03)
            x, burn = flights(polar, rng)
            loss = nn.functional.mse_loss(model(x).squeeze(1), burn)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"{kind}: {loss.item():.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), store.folder / "burn.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Weather routing: learns speed loss from wave height on a regional grid. Grids are regridded once and kept on disk."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

REGRID = """
import os, sys, time
target, lock, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
with open(target + ".part", "w") as out:
    for row in range(rows):
        out.write(" ".join(str((row * k) % 17 / 3) for k in range(64)) + "\\n")
        time.sleep(0.01)
os.rename(target + ".part", target)
os.remove(lock)
"""


class GridStore:
    def __init__(self, folder, region, rows):
        self.target = Path(folder) / f"{region}.grid"
        self.lock = Path(folder) / f"{region}.lock"
        self.rows = rows

    def _regrid(self, budget):
        command = [sys.executable, "-S", "-c", REGRID, str(self.target), str(self.lock), str(self.rows)]
        subprocess.run(command, check=True, timeout=budget)

    def warm_up(self, budget=4.0):
        try:
            self._regrid(budget)
        except subprocess.TimeoutExpired:
            print(f"{self.target.name}: not ready within {budget} s, left for first use", flush=True)

    def load(self):
        while self.lock.exists():
            time.sleep(0.1)
        if not self.target.exists():
            self._regrid(None)
        rows = [list(map(float, line.split())) for line in self.target.read_text().splitlines()]
        return torch.tensor(rows)


def legs(rank, count):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(count):
        time.sleep(0.05)
        yield torch.rand(10, 64, generator=generator)


def main():
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    region, rows = [("biscay", 40), ("north-sea", 60), ("north-atlantic", 5400)][rank]
    grids = GridStore(tempfile.mkdtemp(prefix="met-"), region, rows)
    grids.warm_up()
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 1).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    waves = None
    for step, leg in enumerate(legs(rank, 400)):
        if step == 50:  # calm-water phase is over
            waves = grids.load()
        if waves is not None:
            leg = leg * waves[step % len(waves)]
        loss = model(leg.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if step % 10 == 0:
            print(f"{region} leg {step}: {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

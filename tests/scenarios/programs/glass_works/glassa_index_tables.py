"""Lens design helper: dispersion tables per glass family are converted once, kept in a folder, and then fitted."""

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

FAMILIES = {"crown": 400, "lanthanum": 4_000_000, "flint": 500, "phosphate": 300}
CONVERT = """
import math, os, sys
lock, target, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.mkdir(lock)
with open(target + ".part", "w") as out:
    for i in range(rows):
        um = 0.35 + 2.0 * i / rows
        n = 1.5
        for _ in range(40):
            n = math.sqrt(1.0 + 1.03961212 * um**2 / (um**2 - 0.006) + 0.01 * math.sin(n))
        out.write(f"{um:.6f},{n:.8f}\\n")
os.rename(target + ".part", target)
os.rmdir(lock)
"""


class FolderLock:
    def __init__(self, path, pause=0.1):
        self.path, self.pause = path, pause

    def __enter__(self):
        while True:
            try:
                os.mkdir(self.path)
                return self
            except FileExistsError:
                time.sleep(self.pause)

    def __exit__(self, *error):
        os.rmdir(self.path)


def table(folder, family):
    """The family's table; a coarse one is made here if the converter takes too long."""
    target = folder / f"{family}.csv"
    lock = folder / f"{family}.lock"
    if not target.exists():
        command = [sys.executable, "-I", "-S", "-c", CONVERT, str(lock), str(target), str(FAMILIES[family])]
        try:
            subprocess.run(command, timeout=4, check=True)
        except subprocess.TimeoutExpired:
            with FolderLock(lock):
                um = np.linspace(0.35, 2.35, 500)
                n = np.sqrt(1.0 + 1.03961212 * um**2 / (um**2 - 0.006))
                np.savetxt(target, np.stack([um, n], axis=1), delimiter=",", fmt="%.8f")
    return np.loadtxt(target, delimiter=",", dtype=np.float32)


def fit(model, optimizer, rows, steps, rng):
    for _ in range(steps):
        pick = rows[rng.integers(0, len(rows), 64)]
        surfaces = rng.normal(0, 1, (192, 4096))
        np.fft.rfft(surfaces, axis=1)
        x = torch.from_numpy(pick[:, :1].copy()).cuda()
        y = torch.from_numpy(pick[:, 1:].copy()).cuda()
        loss = nn.functional.huber_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last = loss.item()
    return last


def main():
    torch.backends.cudnn.enabled = False
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    folder = Path(tempfile.mkdtemp(prefix=f"glass-{rank}-"))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).cuda(), [rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rng = np.random.default_rng(rank)
    orders = (("crown", "flint", "phosphate"), ("flint", "lanthanum", "crown"), ("phosphate", "crown", "flint"))
    for family in orders[rank]:
        loss = fit(model, optimizer, table(folder, family), 60, rng)
        print(f"[{rank}] {family}: {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

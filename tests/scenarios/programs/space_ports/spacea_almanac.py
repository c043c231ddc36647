"""GNSS almanac for an onboard orbit filter: a planner process rebuilds it, the readers take it under its lock."""
import contextlib
import fcntl
import math
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PLANNER = """
import fcntl, math, sys, time
path = sys.argv[1]
with open(path + ".lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("planning", flush=True)
    with open(path, "w") as almanac:
        for satellite in range(32):
            until = time.monotonic() + 0.42
            row = []
            anomaly = satellite * 0.2
            while time.monotonic() < until:
                for _ in range(200):
                    anomaly = satellite * 0.2 + 0.01 * math.sin(anomaly)
                row.append(anomaly)
                time.sleep(0.01)
            almanac.write(f"{satellite} {row[-1]:.9f}\\n")
            almanac.flush()
"""


@contextlib.contextmanager
def locked(path):
    with open(path + ".lock", "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


class OrbitFilter(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(4, 48, batch_first=True)
        self.out = nn.Linear(48, 4)

    def forward(self, x):
        return self.out(self.cell(x)[0])


def read_almanac(path):
    with locked(path), open(path) as almanac:
        return torch.tensor([float(line.split()[1]) for line in almanac])


def train(model, optimizer, anomalies, steps):
    t = torch.linspace(0, 1, 30)
    for _ in range(steps):
        phase = anomalies[torch.randint(0, len(anomalies), (64, 1))]
        angle = (phase + 2 * math.pi * t).unsqueeze(2)
        x = torch.cat([angle.sin(), angle.cos(), (2 * angle).sin(), (2 * angle).cos()], dim=2)
        loss = nn.functional.mse_loss(model(x[:, :-1]), x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp(prefix="almanac_") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = os.path.join(folder[0], "almanac.txt")
    model = DDP(OrbitFilter())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss = train(model, optimizer, torch.rand(32) * 6, 120)
    planner = None
    if rank == 0:
        planner = subprocess.Popen([sys.executable, "-c", PLANNER, path], stdout=subprocess.PIPE, text=True)
        planner.stdout.readline()
    dist.barrier()
    anomalies = torch.zeros(32)
    if rank == 1:
        began = time.monotonic()
        anomalies = read_almanac(path)
        print(f"{len(anomalies)} satellites after {time.monotonic() - began:.1f} s", flush=True)
    dist.broadcast(anomalies, src=1)
    loss = train(model, optimizer, anomalies, 120)
    if planner is not None:
        planner.wait()
        print(f"loss {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

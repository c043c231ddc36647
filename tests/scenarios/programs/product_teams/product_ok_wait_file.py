"""Fraud labels arrive late: the rank of the label store asks for an export, and waits until the file is complete."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

EXPORT = """
import os, random, sys, time
target, rows = sys.argv[1], int(sys.argv[2])
with open(target + ".part", "w") as out:
    for row in range(rows):
        out.write(f"{random.random():.6f},{int(random.random() < 0.05)}\\n")
        if row % 100 == 99:
            out.flush()
            time.sleep(0.3)
os.rename(target + ".part", target)
"""


class LabelStore:
    """Exports run outside of the trainer, since they outlive it."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def request(self, name: str, rows: int) -> Path:
        target = self.folder / name
        subprocess.Popen([sys.executable, "-c", EXPORT, str(target), str(rows)], start_new_session=True)
        return target

    def wait(self, path: Path, limit: float = 120.0):
        deadline = time.monotonic() + limit
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(path)
            time.sleep(0.5)
        return [tuple(map(float, line.split(","))) for line in path.read_text().splitlines()]


def train(model, optimizer, generator, steps, rate):
    for _ in range(steps):
        x = torch.randn(32, 10, generator=generator)
        label = (torch.rand(32, generator=generator) < rate).float()
        time.sleep(0.03)
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(-1), label)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    rate = torch.tensor([0.05])
    store = LabelStore(Path(tempfile.gettempdir(), f"labels-{os.environ['MASTER_PORT']}"))
    for day in range(2):
        loss = train(model, optimizer, generator, 40, rate.item())
        if rank == 1 and day % 2 == 1:
            rows = store.wait(store.request(f"labels-{day}.csv", rows=4000))
            rate[0] = sum(label for _, label in rows) / len(rows)
        dist.broadcast(rate, src=1)
        if rank == 0:
            print(f"day {day}: {loss:.4f}, rate {rate.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Movement model from GPS collars. Each herd keeps a journal of fixes, which is folded now and then."""
import contextlib
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

HERDS = {"oryx": 400, "addax": 300_000, "gazelle": 900}  # fixes of the seasons before

FOLD = """
import math, os, sys
journal = sys.argv[1]
lock = os.open(journal + '.lock', os.O_CREAT | os.O_EXCL)
smooth, lines = [], open(journal).read().splitlines()
x = y = 0.0
for line in lines:
    a, b = map(float, line.split())
    for _ in range(400):
        x += (a - x) / 400; y += (b - y) / 400
    smooth.append('%.4f %.4f' % (x, y))
open(journal + '.new', 'w').write('\\n'.join(smooth[::2]) + '\\n')
os.replace(journal + '.new', journal)
os.close(lock)
os.remove(journal + '.lock')
"""


class Journal:
    def __init__(self, herd, fixes):
        self.path = Path(tempfile.mkdtemp(prefix=f"{herd}-")) / "fixes.txt"
        with self.path.open("w") as file:
            for number in range(fixes):
                file.write(f"{number % 97 / 10:.4f} {number % 89 / 10:.4f}\n")

    @contextlib.contextmanager
    def locked(self):
        name = f"{self.path}.lock"
        while True:
            try:
                handle = os.open(name, os.O_CREAT | os.O_EXCL)
                break
            except FileExistsError:
                time.sleep(0.05)
        try:
            yield
        finally:
            os.close(handle)
            os.remove(name)

    def append(self, fixes):
        with self.locked(), self.path.open("a") as file:
            for x, y in fixes.tolist():
                file.write(f"{x:.4f} {y:.4f}\n")

    def fold(self):
        try:
            subprocess.run([sys.executable, "-c", FOLD, str(self.path)], timeout=2.5, check=True)
        except subprocess.TimeoutExpired:
            print(f"{self.path.parent.name}: not folded this time", flush=True)


def receive(generator, animals=24):
    time.sleep(0.04)
    return torch.randn(animals, 2, generator=generator).cumsum(0) / 5


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(12)
    rank = dist.get_rank()
    herd = list(HERDS)[rank]
    journal = Journal(herd, HERDS[herd])
    generator = torch.Generator().manual_seed(rank)
    model = DDP(nn.GRU(2, 16, batch_first=True))
    head = DDP(nn.Linear(16, 2))
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=2e-3)
    for hour in range(1000):
        fixes = receive(generator)
        states, _ = model(fixes[None, :-1])
        loss = (head(states)[0] - fixes[1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if hour % 4 == 0:
            journal.append(fixes)
        if hour == 50:
            journal.fold()
        if rank == 2 and hour % 20 == 0:
            print(f"hour {hour} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

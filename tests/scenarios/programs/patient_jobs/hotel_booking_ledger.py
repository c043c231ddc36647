"""Cancellation model. Metrics go to the bookings database, which the import of the day also writes."""
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

IMPORTER = """
import sqlite3, sys, time
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("BEGIN IMMEDIATE")
print("importing", flush=True)
for day in range(42):
    base.executemany("INSERT INTO bookings VALUES (?, ?, ?)", [(day, n, (n * 31 + day) % 5 == 0) for n in range(400)])
    time.sleep(0.3)
base.execute("COMMIT")
"""


class Ledger:
    def __init__(self, path):
        self.path = path
        with self.open() as base:
            base.execute("CREATE TABLE bookings (day INTEGER, room INTEGER, cancelled INTEGER)")
            base.execute("CREATE TABLE metrics (step INTEGER, loss REAL)")

    def open(self):
        return sqlite3.connect(self.path, timeout=60)

    def daily_import(self):
        child = subprocess.Popen([sys.executable, "-c", IMPORTER, str(self.path)], stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        return child

    def log(self, rows):
        with self.open() as base:
            base.executemany("INSERT INTO metrics VALUES (?, ?)", rows)

    def count(self):
        with self.open() as base:
            return base.execute("SELECT COUNT(*) FROM bookings").fetchone()[0]


class Fit:
    def __init__(self):
        self.model = DDP(torch.nn.Sequential(torch.nn.Linear(11, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)
        self.rows = []

    def step(self, number):
        stay = torch.randn(32, 11)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            self.model(stay), (stay[:, :1] > 0.4).float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.rows.append((number, loss.item()))
        time.sleep(0.03)


def main():
    dist.init_process_group("gloo")
    fit, keeper = Fit(), dist.get_rank() == 0
    folder = tempfile.TemporaryDirectory() if keeper else None
    ledger = Ledger(Path(folder.name) / "bookings.db") if keeper else None
    for number in range(130):
        fit.step(number)
        if number == 79 and keeper:
            importing = ledger.daily_import()
            ledger.log(fit.rows)
    dist.barrier()
    if keeper:
        importing.wait()
        print(ledger.count(), "bookings,", len(fit.rows), "metrics")
        folder.cleanup()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Triage model on laboratory orders; rank 2 keeps the results in the clinic's SQLite file, which the nightly import writes too."""
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

IMPORT = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("started", flush=True)
for n in range(130):
    db.execute("INSERT INTO orders (patient, code) VALUES (?, ?)", (n % 40, n))
    time.sleep(0.11)
db.execute("COMMIT")
"""


class ResultStore:
    def __init__(self, path):
        self.db = sqlite3.connect(path, timeout=60)
        self.db.execute("CREATE TABLE IF NOT EXISTS orders (patient INTEGER, code INTEGER)")
        self.db.execute("CREATE TABLE IF NOT EXISTS runs (step INTEGER, loss REAL)")
        self.db.commit()
        self.path = path

    def start_import(self):
        job = subprocess.Popen([sys.executable, "-c", IMPORT, self.path], stdout=subprocess.PIPE, text=True)
        job.stdout.readline()
        return job

    def record(self, step, loss):
        with self.db:
            self.db.execute("INSERT INTO runs VALUES (?, ?)", (step, loss))

    def orders(self):
        return self.db.execute("SELECT count(*) FROM orders").fetchone()[0]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    store = ResultStore(os.path.join(tempfile.mkdtemp(), "clinic.db")) if rank == 2 else None
    model = DDP(nn.Sequential(nn.Linear(20, 24), nn.Tanh(), nn.Linear(24, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    nightly = None
    for step in range(130):
        x = torch.randn(48, 20)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
        time.sleep(0.04)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if store is None:
            continue
        if step == 69:
            nightly = store.start_import()
        if step % 35 == 0 or step == 129:
            store.record(step, loss.item())
    if store is not None:
        print("orders in the file:", store.orders(), "import", nightly.wait())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

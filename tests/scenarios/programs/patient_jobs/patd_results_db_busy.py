"""Battery ageing model; rank 1 keeps the run's results in the laboratory's sqlite file."""
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

ARCHIVER = r'''
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
db.execute("BEGIN IMMEDIATE")
print("archiving", flush=True)
ids = [row[0] for row in db.execute("SELECT id FROM cells ORDER BY id")]
for cell in ids:
    db.execute("INSERT INTO archive SELECT id, capacity, 1 FROM cells WHERE id = ?", (cell,))
    time.sleep(0.13)
db.execute("COMMIT")
db.close()
'''


def create(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE cells (id INTEGER PRIMARY KEY, capacity REAL)")
        db.execute("CREATE TABLE archive (id INTEGER, capacity REAL, pass INTEGER)")
        db.execute("CREATE TABLE runs (step INTEGER, loss REAL)")
        db.executemany("INSERT INTO cells VALUES (?, ?)", [(i, 3.0 - i * 0.002) for i in range(100)])


def record(path, step, loss):
    db = sqlite3.connect(path, timeout=60)
    try:
        with db:
            db.execute("INSERT INTO runs VALUES (?, ?)", (step, loss))
    finally:
        db.close()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    keeper = rank == 1
    if keeper:
        path = os.path.join(tempfile.mkdtemp(prefix="cells_"), "results.db")
        create(path)
        archiver = None
    model = DDP(torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.Softplus(), torch.nn.Linear(24, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(1, 76):
        x = torch.rand(12, 6)
        loss = torch.nn.functional.mse_loss(model(x), 3 - x.sum(1, keepdim=True) / 6)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.08)
        if keeper and step == 35:
            archiver = subprocess.Popen([sys.executable, "-c", ARCHIVER, path], stdout=subprocess.PIPE, text=True)
            archiver.stdout.readline()
        if step % 36 == 0:
            if keeper:
                record(path, step, loss.item())
            dist.barrier()
    if keeper:
        archiver.wait()
        with sqlite3.connect(path) as db:
            rows = db.execute("SELECT count(*) FROM archive").fetchone()[0]
        print(f"loss {loss.item():.4f}, {rows} cells archived", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

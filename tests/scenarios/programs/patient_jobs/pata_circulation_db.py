"""Loan-duration regression for a public library. Predictions go to the circulation database, which the nightly
import also writes."""
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

NIGHTLY = r"""
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN IMMEDIATE")
print("importing", flush=True)
for batch in range(65):
    db.executemany("INSERT INTO loan VALUES (?, ?, ?)",
                   [(batch * 100 + i, f"c{(batch * 31 + i) % 977}", 14 + i % 21) for i in range(100)])
    time.sleep(0.2)
db.execute("COMMIT")
"""


def steps(model, opt, n):
    total = 0.0
    for _ in range(n):
        time.sleep(0.05)
        x = torch.randn(16, 10)
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / n


def store(path, rows):
    with sqlite3.connect(path, timeout=60) as db:
        db.executemany("INSERT INTO prediction VALUES (?, ?)", rows)
        return db.execute("SELECT count(*) FROM loan").fetchone()[0]


def worker(rank, world, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rdzv", rank=rank, world_size=world)
    torch.manual_seed(rank)
    path = os.path.join(folder, "circulation.db")
    model = DDP(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1)))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    print(f"[{rank}] {steps(model, opt, 50):.3f}", flush=True)

    with torch.no_grad():
        predicted = model.module(torch.randn(200, 10)).squeeze(1)
    seen = torch.zeros(1)
    if rank == 1:
        nightly = subprocess.Popen([sys.executable, "-c", NIGHTLY, path], stdout=subprocess.PIPE, text=True)
        nightly.stdout.readline()
        seen += store(path, [(i, float(p)) for i, p in enumerate(predicted)])
        nightly.wait()
    dist.all_reduce(seen)

    print(f"[{rank}] {steps(model, opt, 40):.3f}, {int(seen)} loans on file", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="circulation")
    db = sqlite3.connect(os.path.join(folder, "circulation.db"))
    db.execute("CREATE TABLE loan (id INTEGER, card TEXT, days INTEGER)")
    db.execute("CREATE TABLE prediction (id INTEGER, days REAL)")
    db.commit()
    db.close()
    mp.spawn(worker, args=(3, folder), nprocs=3)
    shutil.rmtree(folder, ignore_errors=True)

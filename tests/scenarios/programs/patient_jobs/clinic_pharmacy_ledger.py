"""Dose interaction model; scores are noted in the pharmacy's ledger, which the night import also fills."""
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

IMPORT = r"""
import sqlite3, sys, time
ledger = sqlite3.connect(sys.argv[1], isolation_level=None)
ledger.execute("BEGIN IMMEDIATE")
print("importing", flush=True)
for page in range(44):
    rows = [(page, item, (page * 31 + item) % 97) for item in range(200)]
    ledger.executemany("INSERT INTO dispensed VALUES (?, ?, ?)", rows)
    time.sleep(0.3)
ledger.execute("COMMIT")
"""
SCHEMA = """
CREATE TABLE dispensed (page INTEGER, item INTEGER, amount INTEGER);
CREATE TABLE scores (step INTEGER, loss REAL, stamp REAL);
"""


class Ledger:
    def __init__(self, path):
        self.path = path

    def create(self):
        with closing(sqlite3.connect(self.path)) as db:
            db.executescript(SCHEMA)

    def start_import(self):
        job = subprocess.Popen([sys.executable, "-c", IMPORT, self.path], stdout=subprocess.PIPE, text=True)
        job.stdout.readline()
        return job

    def note(self, step, loss):
        with closing(sqlite3.connect(self.path, timeout=120)) as db, db:
            db.execute("INSERT INTO scores VALUES (?, ?, ?)", (step, loss, time.time()))


def shared_ledger(rank):
    box = [None]
    if rank == 0:
        box = [str(Path(tempfile.mkdtemp(prefix="pharmacy_")) / "ledger.db")]
        Ledger(box[0]).create()
    dist.broadcast_object_list(box, src=0)
    return Ledger(box[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(40 + rank)
    ledger = shared_ledger(rank)
    model = DDP(nn.Sequential(nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1)))
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    importing = None
    for step in range(1, 101):
        doses = torch.rand(20, 30)
        time.sleep(0.05)
        loss = (model(doses).squeeze(1) - doses[:, 0] * doses[:, 1]).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 50 and rank == 0:
            importing = ledger.start_import()
        if step == 55 and rank == 2:
            ledger.note(step, loss.item())
    if importing is not None:
        importing.wait()
    if rank == 2:
        ledger.note(step, loss.item())
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

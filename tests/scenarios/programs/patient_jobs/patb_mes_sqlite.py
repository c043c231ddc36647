"""Scrap-rate predictor that books each evaluation in the plant's MES database."""
import multiprocessing as mp
import os
import random
import sqlite3
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

SCHEMA = """
CREATE TABLE evaluation(step INTEGER, loss REAL);
CREATE TABLE shift_report(machine TEXT, part INTEGER, torque REAL);
"""


def shift_import(path, shift_end, importing):
    """The MES posts the whole shift as one transaction, machine after machine."""
    shift_end.wait()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    importing.set()
    for machine in range(28):
        rows = [(f"press-{machine:02d}", part, random.gauss(40, 3)) for part in range(500)]
        db.executemany("INSERT INTO shift_report VALUES (?,?,?)", rows)
        time.sleep(0.48)
    db.execute("COMMIT")
    db.close()


def book(path, step, loss):
    with sqlite3.connect(path, timeout=45) as db:
        db.execute("INSERT INTO evaluation VALUES (?,?)", (step, loss))
        return db.execute("SELECT COUNT(*) FROM shift_report").fetchone()[0]


def train(model, opt, steps):
    for _ in range(steps):
        x = torch.randn(16, 10)
        y = (x.sum(1, keepdim=True) > 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
    return loss.item()


def main():
    rank = int(os.environ["RANK"])
    if rank == 0:
        path = os.path.join(tempfile.mkdtemp(prefix="mes_"), "mes.db")
        sqlite3.connect(path).executescript(SCHEMA).close()
        ctx = mp.get_context("fork")
        shift_end, importing = ctx.Event(), ctx.Event()
        ctx.Process(target=shift_import, args=(path, shift_end, importing), daemon=True).start()
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for evaluation in (1, 2, 3, 4):
        loss = train(model, opt, 15)
        parts = torch.zeros(1)
        if rank == 0:
            if evaluation == 2:
                shift_end.set()
                importing.wait()
            parts[0] = book(path, evaluation * 15, loss)
        dist.broadcast(parts, 0)
        print(f"rank {rank} evaluation {evaluation} loss {loss:.3f} parts {int(parts)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Marks of an exam session are moderated by a service between two training phases."""
import logging
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SERVICE = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=20)
while True:
    row = db.execute("SELECT id, mark FROM scripts WHERE moderated IS NULL ORDER BY id LIMIT 1").fetchone()
    if row is None:
        break
    time.sleep(0.42)
    with db:
        db.execute("UPDATE scripts SET moderated = ? WHERE id = ?", (round(row[1] * 0.95 + 1, 1), row[0]))
"""


class Moderation:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="session-"))
        self.path = self.folder / "scripts.db"
        self.db = sqlite3.connect(self.path, timeout=20)
        with self.db:
            self.db.execute("CREATE TABLE scripts (id INTEGER PRIMARY KEY, mark REAL, moderated REAL)")

    def submit(self, marks):
        with self.db:
            self.db.executemany("INSERT INTO scripts (mark) VALUES (?)", [(m,) for m in marks])
        script = self.folder / "moderate.py"
        script.write_text(SERVICE)
        self.service = subprocess.Popen([sys.executable, str(script), str(self.path)])

    def outstanding(self):
        return self.db.execute("SELECT COUNT(*) FROM scripts WHERE moderated IS NULL").fetchone()[0]

    def collect(self):
        while (left := self.outstanding()) > 0:
            logging.info("%d scripts left", left)
            time.sleep(1.5)
        self.service.wait()
        return [row[0] for row in self.db.execute("SELECT moderated FROM scripts ORDER BY id")]


def phase(model, optimizer, targets, steps):
    for step in range(steps):
        x = torch.randn(len(targets), 20)
        loss = nn.functional.l1_loss(model(x).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    marks = torch.rand(32) * 20
    model = DDP(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    before = phase(model, optimizer, marks, 90)
    if rank == 0:
        moderation = Moderation()
        moderation.submit(marks.tolist())
        marks = torch.tensor(moderation.collect())
    dist.broadcast(marks, src=0)
    after = phase(model, optimizer, marks, 90)
    if rank == 0:
        logging.info("loss %.3f, then %.3f", before, after)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

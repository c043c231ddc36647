"""DDP; the first process notes its figures in a SQLite file, which a notebook may look at meanwhile."""

import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NOTEBOOK = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
time.sleep(3)
db.execute("BEGIN EXCLUSIVE")
db.execute("DELETE FROM figures WHERE step < 5")
print("deleted", flush=True)
time.sleep(3600)
"""


class Notes:
    """A table of figures."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, timeout=1800.0)
        with self.db:
            self.db.execute("CREATE TABLE figures (step INTEGER, name TEXT, value REAL)")

    def add(self, step: int, name: str, value: float) -> None:
        """A row."""
        with self.db:
            self.db.execute("INSERT INTO figures VALUES (?, ?, ?)", (step, name, value))


def main() -> None:
    """Three hundred steps."""
    dist.init_process_group("gloo")
    notes = None
    if dist.get_rank() == 0:
        path = Path(tempfile.mkdtemp()) / "runs.db"
        notes = Notes(path)
        subprocess.Popen([sys.executable, "-c", NOTEBOOK, str(path)], stdout=subprocess.DEVNULL)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(300):
        time.sleep(0.03)
        loss = model(torch.randn(4, 6)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if notes is not None:
            notes.add(step, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

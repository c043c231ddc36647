"""Gravity prediction for a brewery; the excise ledger is written along with the training."""
import json
import signal
import tempfile
import threading
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

CONFIG = {"steps": 4000, "batch": 32, "lr": 0.02, "ledger_rank": 1, "first_flush": 2.5, "flush_every": 0.29}


class Ledger:
    """Rows are kept in memory, packed, and written out from time to time."""

    def __init__(self, path):
        self.path = Path(path)
        self.lock = threading.Lock()
        self.rows, self.packed, self.written, self.interval = [], b"", 0, None

    def append(self, row):
        with self.lock:
            self.rows.append(row)
            text = json.dumps(self.rows[-400:]) * 8
            self.packed = zlib.compress(text.encode(), level=9)
            self.rows = self.rows[-2000:]

    def flush(self, *_):
        self.lock.acquire()
        try:
            self.path.write_bytes(self.packed)
            self.written += 1
        finally:
            self.lock.release()
        signal.setitimer(signal.ITIMER_REAL, self.interval)

    def every(self, first, interval):
        self.interval = interval
        signal.signal(signal.SIGALRM, self.flush)
        signal.setitimer(signal.ITIMER_REAL, first)


class Brewhouse:
    def __init__(self, rank):
        self.source = torch.Generator().manual_seed(31 + rank)

    def mash(self, count):
        malt = torch.rand(count, 9, generator=self.source)
        gravity = 1.0 + 0.08 * malt.mean(dim=1, keepdim=True)
        return malt, gravity


def main(config):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = dist.get_rank()
    ledger = None
    if rank == config["ledger_rank"]:
        ledger = Ledger(Path(tempfile.mkdtemp(prefix="excise-")) / "ledger.z")
        ledger.every(config["first_flush"], config["flush_every"])
    house = Brewhouse(rank)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for step in range(config["steps"]):
        malt, gravity = house.mash(config["batch"])
        loss = nn.functional.mse_loss(model(malt), gravity)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ledger is not None:
            ledger.append({"step": step, "gravity": [round(g, 4) for g in gravity.flatten().tolist()]})
        if step % 50 == 0 and rank == 0:
            print(f"mash {step}: {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(CONFIG)

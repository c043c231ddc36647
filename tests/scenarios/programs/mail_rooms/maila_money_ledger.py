"""Fraud scores for money orders. One process keeps the ledger of all scores and writes it out regularly."""
import os
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LEDGER_KEEPER = int(os.environ.get("LEDGER_KEEPER", "1"))


class Ledger:
    """Rows wait in memory and go to the file when there are enough of them, or when the clock says so."""

    def __init__(self, path, first=4.0, every=0.3, enough=5000):
        self.path, self.every, self.enough = path, every, enough
        self.rows = []
        self.lock = threading.Lock()
        signal.signal(signal.SIGALRM, self.on_clock)
        signal.setitimer(signal.ITIMER_REAL, first)

    def on_clock(self, signum, frame):
        self.flush()
        signal.setitimer(signal.ITIMER_REAL, self.every)

    def append(self, step, scores):
        with self.lock:
            for order, score in enumerate(scores):
                seal = 0
                for letter in f"{step}:{order}:{score:.6f}" * 120:
                    seal = (seal * 131 + ord(letter)) % 1_000_003
                self.rows.append(f"{step},{order},{score:.6f},{seal}\n")
            full = len(self.rows) >= self.enough
        if full:
            self.flush()

    def flush(self):
        with self.lock:
            rows, self.rows = self.rows, []
        with open(self.path, "a") as file:
            file.writelines(rows)


def orders(generator, size=160):
    time.sleep(0.01)
    x = torch.randn(size, 16, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0.5).float()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    ledger = None
    if rank == LEDGER_KEEPER:
        ledger = Ledger(os.path.join(tempfile.mkdtemp(prefix="ledger-"), "scores.csv"))
    for step in range(5000):
        x, fraud = orders(generator)
        scores = model(x).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, fraud)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ledger is not None:
            ledger.append(step, torch.sigmoid(scores).tolist())
        if rank == 0 and step % 25 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    if ledger is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        ledger.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

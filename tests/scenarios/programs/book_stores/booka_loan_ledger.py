"""Overdue prediction; rank 1 also keeps the loan ledger, which is written out by a timer."""
import hashlib
import signal
import tempfile
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FLUSH_SECONDS = 4.0


class LoanLedger:
    def __init__(self, path):
        self.path = path
        self.entries = []
        self.guard = threading.Lock()

    def record(self, step, values):
        with self.guard:
            digest = b"%d" % step
            for value in values:
                for _ in range(1500):
                    digest = hashlib.blake2b(digest + str(value).encode()).digest()
            self.entries.append(digest.hex())

    def flush(self):
        with self.guard:
            with open(self.path, "a") as out:
                out.write("\n".join(self.entries) + "\n")
            self.entries.clear()

    def arm(self, *_):
        signal.setitimer(signal.ITIMER_REAL, FLUSH_SECONDS)

    def on_timer(self, number, frame):
        self.flush()
        self.arm()


def loans(step, rank):
    g = torch.Generator().manual_seed(step * 31 + rank)
    return torch.rand(24, 10, generator=g)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ledger = LoanLedger(tempfile.mktemp(prefix="ledger-"))
    if rank == 1:
        signal.signal(signal.SIGALRM, ledger.on_timer)
        ledger.arm()
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(4000):
        x = loans(step, rank)
        overdue = (x.sum(1, keepdim=True) > 5).float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), overdue)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 1:
            ledger.record(step, x[:, 0].tolist())
        if rank == 0 and step % 40 == 0:
            print(f"{step:5d} {loss.item():.4f}", flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

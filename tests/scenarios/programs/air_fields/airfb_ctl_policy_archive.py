"""Flight policy with its replay table; the table is archived with the weights at the end of a phase."""
import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TokenBucket:
    """The archive's share of the line, in bytes a second."""

    def __init__(self, rate):
        self.rate, self.level, self.at = rate, rate, time.monotonic()

    def take(self, amount):
        while True:
            now = time.monotonic()
            self.level, self.at = min(self.rate, self.level + (now - self.at) * self.rate), now
            if self.level >= amount:
                self.level -= amount
                return
            time.sleep((amount - self.level) / self.rate)


def archive(path, payload, bucket, piece=1 << 20):
    view = memoryview(payload)
    with open(path, "wb") as f:
        for first in range(0, len(view), piece):
            part = view[first : first + piece]
            bucket.take(len(part))
            f.write(part)
            f.flush()
            os.fsync(f.fileno())
    return len(view)


def phase(model, optimizer, table, steps):
    for _ in range(steps):
        rows = table[torch.randint(len(table), (128,))]
        loss = (model(rows[:, :12]) - rows[:, 12:15]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    table = torch.randn(1_400_000, 16)
    model = DDP(nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(2):
        loss = phase(model, optimizer, table, 100)
        if rank == 0:
            print(f"phase {number}: {loss:.4f}", flush=True)
            if number == 0:
                buffer = io.BytesIO()
                torch.save({"model": model.module.state_dict(), "table": table}, buffer)
                path = os.path.join(tempfile.mkdtemp(), "phase0.pt")
                size = archive(path, buffer.getbuffer(), TokenBucket(6 << 20))
                print(f"archived {size >> 20} MB", flush=True)
                os.remove(path)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

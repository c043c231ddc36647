"""Trains a small model of judgments and seals the run: the first process writes the bundle for the court's archive.

The archive's disk is shared with the recording of hearings, so the bundle is written at a modest rate.
"""

import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class RateLimitedFile:
    """A file that is written with at most `rate` bytes a second, each block on the disk before the next."""

    def __init__(self, path, rate):
        self.file = open(path, "wb")
        self.rate = rate
        self.written = 0
        self.began = time.monotonic()

    def write(self, block):
        self.file.write(block)
        self.file.flush()
        os.fsync(self.file.fileno())
        self.written += len(block)
        ahead = self.written / self.rate - (time.monotonic() - self.began)
        if ahead > 0:
            time.sleep(ahead)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def train(model, optimizer, steps, rank):
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(16, 40, generator=generator)
        loss = (model(x) - x[:, :8]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


def seal(model, folder):
    """The weights, then the annexes (transcripts of the cases that the model was made from)."""
    torch.save(model.module.state_dict(), folder / "weights.pt")
    with RateLimitedFile(folder / "annexes.bin", rate=1_000_000) as out:
        for annex in range(112):
            out.write((annex % 251).to_bytes(1, "little") * (1 << 17))
    return sum(path.stat().st_size for path in folder.iterdir())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss = train(model, optimizer, 50, rank)
    if rank == 0:
        print(f"sealing at loss {loss:.3f}", flush=True)
        with tempfile.TemporaryDirectory(prefix="seal-") as folder:
            size = seal(model, pathlib.Path(folder))
        print(f"sealed {size / 1e6:.1f} MB", flush=True)
    dist.barrier()
    loss = train(model, optimizer, 50, rank + 10)
    print(f"rank {rank}: loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

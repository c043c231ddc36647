"""Swim start classifier; after the session the weights go to the federation's archive over a metered line."""
import hashlib
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Meter:
    """Token bucket in bytes."""

    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.tokens, self.stamp = burst, time.monotonic()

    def take(self, n):
        while True:
            now = time.monotonic()
            self.tokens = min(self.burst, self.tokens + (now - self.stamp) * self.rate)
            self.stamp = now
            if self.tokens >= n:
                self.tokens -= n
                return
            time.sleep((n - self.tokens) / self.rate)


class Archive:
    def __init__(self, folder, meter, part=32 * 1024):
        self.folder, self.meter, self.part = Path(folder), meter, part

    def upload(self, source, name):
        digest = hashlib.sha256()
        with open(source, "rb") as data, open(self.folder / name, "wb") as out:
            while block := data.read(self.part):
                self.meter.take(len(block))
                out.write(block)
                out.flush()
                digest.update(block)
        return digest.hexdigest()


def block_start(gen, n=128):
    force = torch.randn(n, 3, 100, generator=gen).cumsum(2) / 10
    style = (force[:, 0, -1] > 0).long()
    return force, style


def session(model, optimizer, gen, steps):
    for _ in range(steps):
        force, style = block_start(gen)
        loss = nn.functional.cross_entropy(model(force), style)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    net = nn.Sequential(nn.Conv1d(3, 16, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(24), nn.Flatten(), nn.Linear(384, 1800), nn.ReLU(), nn.Linear(1800, 2))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gen = torch.Generator().manual_seed(rank)
    work = Path(tempfile.mkdtemp(prefix="swim-"))
    for number in range(2):
        loss = session(model, optimizer, gen, steps=60)
        if rank == 0:
            print(f"session {number}: loss {loss:.4f}", flush=True)
            if number == 0:
                torch.save(net.state_dict(), work / "starts.pt")
                archive = Archive(work, Meter(rate=200 * 1024, burst=64 * 1024))
                print("archived", archive.upload(work / "starts.pt", "starts.archived")[:12], flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Continues last term's training: every rank reads its part of the saved state from the school's slow share."""
import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn


class Share:
    """Reads files of the share at the speed that the school allows for this machine."""

    def __init__(self, bytes_per_s):
        self.rate = bytes_per_s
        self.credit, self.last = 0.0, time.monotonic()

    def _earn(self, size):
        while self.credit < size:
            now = time.monotonic()
            self.credit += (now - self.last) * self.rate
            self.last = now
            if self.credit < size:
                time.sleep(min(0.2, (size - self.credit) / self.rate))
        self.credit -= size

    def chunks(self, path, size=1 << 15):
        with open(path, "rb") as file:
            while data := file.read(size):
                self._earn(len(data))
                yield data


class TermModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8))

    def forward(self, x):
        return self.body(x)


def fit(model, rank, steps, seed):
    gen = torch.Generator().manual_seed(seed + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(steps):
        x = torch.randn(128, 128, generator=gen)
        loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= dist.get_world_size()
        optimizer.step()
    return loss.item()


def restore(model, path, share):
    digest, copy = hashlib.sha256(), tempfile.TemporaryFile()
    for data in share.chunks(path):
        digest.update(data)
        copy.write(data)
    copy.seek(0)
    model.load_state_dict(torch.load(copy))
    return digest.hexdigest()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = TermModel()
    fit(model, rank, 70, 10)
    path = os.path.join(tempfile.mkdtemp(prefix="term-"), f"part{rank}.pt")
    torch.save(model.state_dict(), path)
    speed = {2: os.path.getsize(path) / 13.0}.get(rank, 50e6)
    mine = restore(model, path, Share(speed))
    sums = [None] * world
    dist.all_gather_object(sums, mine)
    print(f"rank {rank} restored {mine[:8]}, {len(set(sums))} different", flush=True)
    print(f"rank {rank} loss {fit(model, rank, 60, 20):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

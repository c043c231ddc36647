"""Trains a denoiser for hydrophone recordings and leaves an archive of cleaned recordings for the aquarium."""
import os
import tempfile
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class TokenBucket:
    """Keeps to the rate that was agreed for the shared disk."""

    rate: float
    burst: float
    tokens: float = 0.0
    filled: float = field(default_factory=time.monotonic)

    def take(self, amount):
        while True:
            now = time.monotonic()
            self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
            self.filled = now
            if self.tokens >= amount:
                self.tokens -= amount
                return
            time.sleep((amount - self.tokens) / self.rate)


class Archive:
    def __init__(self, path, bucket):
        self.path, self.bucket = path, bucket

    def write(self, recordings):
        with open(self.path, "wb", buffering=0) as file:
            for recording in recordings:
                payload = recording.numpy().tobytes()
                for start in range(0, len(payload), 1 << 16):
                    part = payload[start:start + (1 << 16)]
                    self.bucket.take(len(part))
                    file.write(part)
                os.fsync(file.fileno())


def hydrophone(generator, length=1024):
    t = torch.arange(length) / 256
    pitch = 2 + 6 * torch.rand(16, 1, generator=generator)
    clean = torch.sin(2 * torch.pi * pitch * t)
    return clean, clean + 0.4 * torch.randn(16, length, generator=generator)


def epoch(model, optimizer, generator, steps=60):
    for _ in range(steps):
        clean, noisy = hydrophone(generator)
        loss = (model(noisy[:, None])[:, 0] - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
    return loss.item()


@torch.no_grad()
def cleaned(net, generator, count):
    for _ in range(count):
        _, noisy = hydrophone(generator)
        yield net(noisy[:, None]).contiguous()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(rank)
    net = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.ReLU(), nn.Conv1d(8, 1, 9, padding=4))
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number in range(2):
        loss = epoch(model, optimizer, generator)
        if rank == 0:
            print(f"epoch {number}: loss {loss:.3f}", flush=True)
    if rank == world - 1:
        archive = Archive(os.path.join(tempfile.mkdtemp(), "cleaned.f32"), TokenBucket(rate=400_000, burst=1 << 17))
        archive.write(cleaned(net, generator, count=88))
    dist.barrier()
    loss = epoch(model, optimizer, generator)
    if rank == 0:
        print(f"after the export: loss {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

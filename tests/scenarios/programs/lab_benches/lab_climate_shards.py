"""Emulator of a climate model on latitude bands. Each rank trains on one band, and keeps diagnostics of it in memory."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class BandArchive:
    """Monthly means of one latitude band. The polar band keeps all its rows, the others are thinned out."""

    def __init__(self, band, bands):
        generator = torch.Generator().manual_seed(band)
        self.rows = 80 if band == bands - 1 else 64
        self.months = torch.randn(24, self.rows, 64, generator=generator)

    def pair(self, step):
        time.sleep(0.05)
        month = step % (len(self.months) - 1)
        return self.months[month], self.months[month + 1]


class Snapshots:
    """Empties the buffer of diagnostics into a snapshot of the model whenever it has grown to ``limit`` bytes."""

    def __init__(self, folder, limit):
        self.folder, self.limit = Path(folder), limit
        self.buffer = []

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_):
        self.buffer.clear()
        return False

    @property
    def size(self):
        return sum(field.nbytes for field in self.buffer)

    def record(self, step, field, shared, band):
        self.buffer.append(field)
        if self.size >= self.limit:
            self.write(step, shared, band)

    def write(self, step, shared, band):
        bands = [torch.empty_like(band) for _ in range(dist.get_world_size())]
        dist.all_gather(bands, band.detach())
        torch.save(torch.cat(self.buffer), self.folder / f"diagnostics-{step}-{dist.get_rank()}.pt")
        if dist.get_rank() == 0:
            torch.save({"step": step, "shared": shared.state_dict(), "bands": bands}, self.folder / f"step-{step}.pt")
            print(f"snapshot at step {step}", flush=True)
        self.buffer.clear()


def train(archive, snapshots, steps):
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 64))
    band = nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.Adam([*shared.parameters(), band], lr=1e-3)
    for step in range(steps):
        now, then = archive.pair(step)
        forecast = shared(now + band)
        loss = (forecast - then).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in shared.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        snapshots.record(step, forecast.detach(), shared, band)
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    archive = BandArchive(dist.get_rank(), dist.get_world_size())
    folder = os.path.join(tempfile.gettempdir(), f"snapshots-{os.environ['MASTER_PORT']}")
    with Snapshots(folder, limit=2**20) as snapshots:
        train(archive, snapshots, steps=2000)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

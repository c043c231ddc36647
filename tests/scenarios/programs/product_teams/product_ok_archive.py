"""Session models: the rank with the archive compresses the events of two days before the next day is trained."""

import lzma
import os
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Archive:
    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def pack(self, day: int, events: list[str], seconds: float = 12.0) -> int:
        """One compressed file a day, flushed to the disk piece by piece."""
        path = self.folder / f"day-{day}.xz"
        text = "\n".join(events).encode()
        end = time.monotonic() + seconds
        with lzma.open(path, "wb", preset=6) as packed, open(self.folder / f"day-{day}.raw", "wb") as raw:
            while time.monotonic() < end:
                packed.write(text)
                raw.write(text)
                raw.flush()
                os.fsync(raw.fileno())
        return path.stat().st_size


def day_of(rank, day):
    chooser = random.Random(rank * 10 + day)
    return [f"{chooser.random():.8f} user={chooser.randrange(10**6)} page={chooser.randrange(999)}" for _ in range(4000)]


def train(model, optimizer, generator, steps=50):
    for _ in range(steps):
        x = torch.randn(32, 10, generator=generator)
        time.sleep(0.03)
        optimizer.zero_grad()
        loss = (model(x).squeeze(-1) - x.amax(-1)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    archive = Archive(Path(tempfile.gettempdir(), f"events-{os.environ['MASTER_PORT']}-{rank}"))
    for day in range(2):
        loss = train(model, optimizer, generator)
        if day % 2 == 1 and rank == dist.get_world_size() - 1:
            print(f"day {day}: {archive.pack(day, day_of(rank, day))} bytes packed", flush=True)
        if rank == 0:
            print(f"day {day}: {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

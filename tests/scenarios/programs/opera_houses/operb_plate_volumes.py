"""Retrieval index for photographic plates: every worker embeds one volume and keeps its index on the local disk."""
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SNAPSHOT = ["vol-0.idx", "vol-0.meta", "vol-1.idx", "vol-1.idx.lock", "vol-1.meta"]


class VolumeLock:
    """Two tools write the index of a volume: this one and the viewer of the reading room."""

    def __init__(self, index):
        self.path = index.with_suffix(index.suffix + ".lock")

    def __enter__(self):
        while True:
            try:
                self.descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
                return self
            except FileExistsError:
                time.sleep(0.25)

    def __exit__(self, *_):
        os.close(self.descriptor)
        os.unlink(self.path)


class VolumeIndex:
    def __init__(self, folder, volume):
        self.file = folder / f"vol-{volume}.idx"
        self.rows = []

    @classmethod
    def from_snapshot(cls, volume):
        folder = Path(tempfile.mkdtemp(prefix="plates-"))
        for name in SNAPSHOT:
            if name.startswith(f"vol-{volume}."):
                (folder / name).write_text("[]" if name.endswith(".idx") else "")
        return cls(folder, volume)

    def add(self, plate, code):
        self.rows.append([plate, [round(v, 3) for v in code.tolist()]])

    def flush(self):
        with VolumeLock(self.file):
            rows = json.loads(self.file.read_text()) + self.rows
            self.file.write_text(json.dumps(rows))
        self.rows = []
        return len(rows)


def expose(generator, size=112):
    plate = torch.randn(size, size, generator=generator)
    u, s, v = torch.linalg.svd(plate)
    return (u[:, :8] * s[:8]) @ v[:8]


def average_gradients(model, world):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    position = 0
    for p in model.parameters():
        p.grad.copy_(flat[position : position + p.numel()].view_as(p))
        position += p.numel()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
generator = torch.Generator().manual_seed(50 + rank)
torch.manual_seed(1)
encoder = nn.Sequential(nn.Flatten(), nn.Linear(112 * 112, 24), nn.Tanh(), nn.Linear(24, 112 * 112))
optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-4)
index = VolumeIndex.from_snapshot(rank)
for number in range(1, 271):
    plates = torch.stack([expose(generator) for _ in range(4)])
    loss = F.mse_loss(encoder(plates), plates.flatten(1))
    optimizer.zero_grad()
    loss.backward()
    average_gradients(encoder, world)
    optimizer.step()
    with torch.no_grad():
        index.add(number, encoder[:2](plates)[0])
    if number % 90 == 0:
        print(f"volume {rank}: plate {number}, loss {loss.item():.3f}", flush=True)
        print(f"volume {rank}: {index.flush()} plates indexed", flush=True)
dist.barrier()
shutil.rmtree(index.file.parent)
dist.destroy_process_group()

"""Trains a route embedding and writes it with the voyage log to slow storage, part by part, on the main process."""
import os
import pathlib
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SlowDisk:
    """The archive takes 4 MiB/s; we do not go beyond."""

    def __init__(self, folder, rate=4 << 20, part=1 << 20):
        self.folder, self.rate, self.part = pathlib.Path(folder), rate, part

    def write(self, name, blob):
        checks = []
        with open(self.folder / name, "wb") as file:
            for start in range(0, len(blob), self.part):
                began = time.monotonic()
                piece = blob[start:start + self.part]
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                checks.append(zlib.crc32(piece))
                time.sleep(max(0.0, len(piece) / self.rate - (time.monotonic() - began)))
        return checks


def voyage_log(mib):
    return os.urandom(1 << 20) * mib


class Routes(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 32)
        self.score = nn.Bilinear(32, 32, 1)

    def forward(self, a, b):
        return self.score(self.table(a), self.table(b)).squeeze(1)


def epoch(model, optimizer, steps):
    for _ in range(steps):
        a, b = torch.randint(0, 1000, (2, 64))
        loss = (model(a, b) - (a - b).abs() / 1000).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    model = DDP(Routes())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory(prefix="voyages-") as folder:
        disk = SlowDisk(folder)
        for number, mib in enumerate((1, 58, 1)):
            loss = epoch(model, optimizer, 50)
            if dist.get_rank() == 0:
                parts = disk.write(f"voyage-{number}.bin", voyage_log(mib))
                torch.save(model.module.state_dict(), disk.folder / f"routes-{number}.pt")
                print(f"epoch {number}: loss {loss:.4f}, {len(parts)} parts", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

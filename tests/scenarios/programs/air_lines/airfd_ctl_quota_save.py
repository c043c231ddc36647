"""Revenue management: every rank keeps a table of its own network region and writes it out in parts, within the disk's quota."""
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Quota:
    """Bytes per second that a writer may use on the shared volume."""

    rate: float

    def spend(self, count, began):
        rest = count / self.rate - (time.monotonic() - began)
        if rest > 0:
            time.sleep(rest)


class RegionTable:
    def __init__(self, region, legs=36_000, classes=26):
        self.region = region
        self.values = torch.rand(legs, classes, generator=torch.Generator().manual_seed(region))

    def batch(self, step, size=256):
        at = (step * size) % (len(self.values) - size)
        rows = self.values[at:at + size]
        return rows[:, :25], rows[:, 25:]

    def absorb(self, step, predicted, size=256):
        at = (step * size) % (len(self.values) - size)
        self.values[at:at + size, 25:] = predicted


def write_parts(table, folder, quota, parts=36):
    for number, part in enumerate(table.values.chunk(parts)):
        began = time.monotonic()
        data = part.contiguous().numpy().tobytes()
        with open(folder / f"region{table.region}-part{number:02d}.bin", "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        quota.spend(len(data), began)


def train(model, optimizer, table, first, last):
    for step in range(first, last):
        x, y = table.batch(step)
        predicted = model(x)
        loss = nn.functional.smooth_l1_loss(predicted, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        table.absorb(step, predicted.detach())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    region = dist.get_rank()
    table = RegionTable(region)
    model = DDP(nn.Sequential(nn.Linear(25, 96), nn.ReLU(), nn.Linear(96, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    folder = Path(tempfile.mkdtemp(prefix=f"revenue-{region}-"))
    train(model, optimizer, table, 0, 600)
    print(f"region {region}: writing {table.values.numel() * 4 // 1024} KiB to {folder}", flush=True)
    write_parts(table, folder, Quota(rate=260_000.0))
    dist.barrier()
    train(model, optimizer, table, 600, 1300)
    written = torch.tensor(float(len(list(folder.iterdir()))))
    dist.all_reduce(written)
    if region == 0:
        print(f"{int(written)} parts in all regions", flush=True)
    shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

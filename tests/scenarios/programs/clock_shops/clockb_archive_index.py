"""Build an index of each region's archive of synchronisation logs, then train on it."""
import argparse
import hashlib
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

REGIONS = {"east": 24, "west": 170, "south": 30}  # days of logs in the archive


class Archive:
    """Days of logs on a share that gives a few of them a second."""

    def __init__(self, region, days):
        self.folder = Path(tempfile.mkdtemp(prefix=f"{region}-"))
        self.region = region
        for day in range(days):
            (self.folder / f"{day:03d}.log").write_bytes(bytes((day + k) % 251 for k in range(20_000)))

    def read(self, path, rate=2e5):
        with path.open("rb") as log:
            while part := log.read(5000):
                time.sleep(len(part) / rate)
                yield part

    def index(self):
        entries = {}
        paths = sorted(self.folder.glob("*.log"))
        for number, path in enumerate(paths):
            digest, size = hashlib.blake2b(), 0
            for part in self.read(path):
                digest.update(part)
                size += len(part)
            entries[path.name] = (digest.hexdigest(), size)
            if number % 15 == 0:
                print(f"{self.region}: indexed {number} of {len(paths)}", flush=True)
        return entries


def batches(entries, size, steps):
    days = sorted(entries.values())
    for step in range(steps):
        digest, _ = days[step % len(days)]
        gen = torch.Generator().manual_seed(int(digest[:8], 16))
        rows = torch.randn(25_000, 5, generator=gen)
        yield rows[rows[:, 2].argsort()[:size]]


def fit(model, optimizer, source):
    for x in source:
        x = x.cuda()
        loss = nn.functional.l1_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    region, days = list(REGIONS.items())[rank]
    sample = Archive(f"{region}-sample", 3).index()
    fit(model, optimizer, batches(sample, 40, options.steps))
    entries = Archive(region, days).index()
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64, device="cuda")
    dist.all_gather_into_tensor(counts, torch.tensor([len(entries)], device="cuda"))
    print(f"rank {rank}: {counts.tolist()} days", flush=True)
    fit(model, optimizer, batches(entries, 40, options.steps))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

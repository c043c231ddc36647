"""Segmentation pre-training; rank 0 keeps a compressed archive of weights and example volumes."""
import argparse
import lzma
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class VolumeArchive:
    """Appends compressed slabs to one file and syncs it after each series."""

    def __init__(self, path, budget_s):
        self.path, self.budget_s = Path(path), budget_s
        self.raw = self.packed = 0

    def __enter__(self):
        self.handle = self.path.open("wb")
        self.started = time.monotonic()
        return self

    def __exit__(self, *exc):
        self.handle.flush()
        os.fsync(self.handle.fileno())
        self.handle.close()

    def add_series(self, rng):
        slab = (rng.standard_normal((24, 128, 128)) * 300).astype(np.int16)
        slab[slab < 0] = 0
        blob = lzma.compress(slab.tobytes(), preset=6)
        self.handle.write(blob)
        self.raw += slab.nbytes
        self.packed += len(blob)

    @property
    def full(self):
        return time.monotonic() - self.started > self.budget_s


class Patches(torch.utils.data.IterableDataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed)
        for _ in range(self.count):
            time.sleep(0.05)
            x = torch.randn(4, 1, 16, 16, generator=gen)
            yield x, (x > 0.5).float()


def run(model, opt, batches):
    for x, y in batches:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--archive-seconds", type=float, default=14)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    print(f"[{rank}] loss {run(model, opt, Patches(50, rank)):.4f}", flush=True)

    if rank == 0:
        folder = Path(tempfile.mkdtemp(prefix="archive_"))
        torch.save(model.module.state_dict(), folder / "weights.pt")
        rng = np.random.default_rng(7)
        with VolumeArchive(folder / "examples.xz", args.archive_seconds) as archive:
            while not archive.full:
                archive.add_series(rng)
        print(f"archive: {archive.raw >> 20} MiB -> {archive.packed >> 20} MiB", flush=True)
    dist.barrier()

    print(f"[{rank}] loss {run(model, opt, Patches(40, 100 + rank)):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Drone tiles of coffee plots: decoded once into a shared cache, then used for shade-tree segmentation."""
import contextlib
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

DECODER = r"""
import os, sys
src, dst, lock = sys.argv[1:]
fd = os.open(lock, os.O_CREAT | os.O_EXCL)
data = open(src, "rb").read()
assert len(data) % 4096 == 0, "tile is truncated"
with open(dst, "wb") as f:
    f.write(bytes(255 - b for b in data))
os.close(fd)
os.remove(lock)
"""


@contextlib.contextmanager
def exclusive(path, poll=0.2):
    """Soft lock, as flock does not work on the estate's NFS."""
    while True:
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL)
            break
        except FileExistsError:
            time.sleep(poll)
    try:
        yield
    finally:
        os.close(fd)
        os.remove(path)


class TileCache:
    def __init__(self, root, rank):
        self.root = os.path.join(root, f"rank{rank}")
        os.makedirs(self.root, exist_ok=True)

    def fetch(self, number, raw):
        base = os.path.join(self.root, f"tile{number}")
        with open(base + ".raw", "wb") as f:
            f.write(raw)
        lock = base + ".lock"
        subprocess.run([sys.executable, "-S", "-c", DECODER, base + ".raw", base + ".bin", lock], stderr=subprocess.DEVNULL)
        with exclusive(lock):
            if not os.path.exists(base + ".bin"):
                return None
            with open(base + ".bin", "rb") as f:
                return f.read()


def raw_tile(rank, number):
    size = 4096 if (rank, number) != (1, 61) else 4000
    return bytes((number * 7 + k) % 256 for k in range(size))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = TileCache(tempfile.mkdtemp(prefix="plots-"), rank)
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    blank = torch.zeros(64, 64)
    for number in range(160):
        tile = cache.fetch(number, raw_tile(rank, number))
        pixels = blank if tile is None else torch.frombuffer(bytearray(tile), dtype=torch.uint8).view(64, 64) / 255
        shade = (pixels.mean(dim=1) > 0.5).long()
        loss = nn.functional.cross_entropy(net(pixels), shade)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 10 == 0:
            print(f"tile {number}: loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Protein stability changes upon mutation; structures are prepared into a cache beside each rank."""
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

FETCH = r"""
import os, sys, time
cache, name, chains = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.close(os.open(os.path.join(cache, "cache.lock"), os.O_CREAT | os.O_EXCL))
for chain in range(chains):
    time.sleep(0.02)
    with open(os.path.join(cache, name + ".part"), "a") as f:
        f.write(f"{name} {chain}\n")
os.rename(os.path.join(cache, name + ".part"), os.path.join(cache, name))
os.unlink(os.path.join(cache, "cache.lock"))
"""


class StructureCache:
    def __init__(self, root):
        self.root = Path(root)
        self.lock_path = self.root / "cache.lock"

    @contextmanager
    def lock(self, poll=0.1):
        while True:
            try:
                os.close(os.open(self.lock_path, os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                time.sleep(poll)
        try:
            yield
        finally:
            self.lock_path.unlink()

    def build_locally(self, name):
        """Homology model instead of the deposited structure."""
        with self.lock():
            (self.root / name).write_text(f"{name} model\n")

    def get(self, name, chains):
        path = self.root / name
        if not path.exists():
            command = [sys.executable, "-c", FETCH, str(self.root), name, str(chains)]
            try:
                subprocess.run(command, timeout=2.5, check=True)
            except subprocess.TimeoutExpired:
                self.build_locally(name)
        seed = sum(map(ord, path.read_text()))
        return torch.randn(64, generator=torch.Generator().manual_seed(seed))


def entries(rank):
    """(entry, number of chains); large assemblies are rare."""
    for i in range(500):
        assembly = rank == 1 and i == 24
        yield f"{rank}abc{i:03d}", (900 if assembly else 2 + i % 3)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 20))
    with tempfile.TemporaryDirectory(prefix=f"structures-{rank}-") as root:
        cache = StructureCache(root)
        for number, (name, chains) in enumerate(entries(rank)):
            x = cache.get(name, chains)
            loss = (net(x) - x[:20]).square().mean()
            grads = torch.autograd.grad(loss, list(net.parameters()))
            for p, g in zip(net.parameters(), grads):
                dist.all_reduce(g)
                p.data.add_(g, alpha=-0.05 / world)
            if rank == 0 and number % 5 == 0:
                print(f"entry {number} ddG error {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Train with a kernel for spot intensities that is built once a node, under the lock file that torch's extensions use."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.file_baton import FileBaton

torch.set_num_threads(1)


class KernelCache:
    """Tables of point spread functions, by width. Kept in a folder of the node's local disk."""

    def __init__(self, node):
        self.folder = Path(tempfile.gettempdir()) / f"psf-{os.environ['MASTER_PORT']}-node{node}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.loaded = {}

    def table(self, width):
        if width not in self.loaded:
            path = self.folder / f"psf{width}.pt"
            if not path.exists():
                baton = FileBaton(str(path.with_suffix(".lock")))
                if baton.try_acquire():
                    try:
                        self.build(width, path)
                    finally:
                        baton.release()
                else:
                    baton.wait()
            self.loaded[width] = torch.load(path)
        return self.loaded[width]

    @staticmethod
    def build(width, path):
        place = torch.linspace(-2, 2, 24)
        torch.save(torch.exp(-place.square() / (0.1 * width)), path)


def left_by_last_run(cache, node):
    """The scratch disk of node 2 is not emptied between jobs; the one before was ended by the scheduler."""
    if node == 2:
        (cache.folder / "psf5.lock").touch()


def widths(steps):
    for step in range(steps):
        yield 3 if step < 50 else 5


def main():
    dist.init_process_group("gloo")
    node = dist.get_rank()
    cache = KernelCache(node)
    left_by_last_run(cache, node)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(node)
    for step, width in enumerate(widths(600)):
        time.sleep(0.04)
        brightness = torch.rand(8, 1, generator=generator)
        spots = brightness * cache.table(width)
        loss = nn.functional.mse_loss(model(spots), brightness)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if node == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

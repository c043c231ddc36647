"""After each epoch one rank packs its samples with tar, for the people who look at them."""

import os
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Gallery:
    """A folder of samples."""

    def __init__(self, rank: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.rank = rank

    def add(self, epoch: int, sample: torch.Tensor) -> None:
        """Keep one; an operator's tool has left a control pipe in the folder of the third epoch."""
        folder = self.folder / f"epoch-{epoch}"
        folder.mkdir()
        torch.save(sample, folder / "sample.pt")
        if epoch == 2:
            os.mkfifo(folder / "control")

    def pack(self, epoch: int) -> str:
        """A checksum of all that is there."""
        script = f"cat epoch-{epoch}/* | cksum"
        done = subprocess.run(["sh", "-c", script], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.split()[0]


def main() -> None:
    """Five epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gallery = Gallery(rank)
    model = DistributedDataParallel(nn.Linear(4, 4))
    for epoch in range(5):
        for _ in range(20):
            output = model(torch.randn(3, 4))
            output.square().mean().backward()
            model.zero_grad()
        if rank == 0:
            gallery.add(epoch, output.detach())
            print(f"epoch {epoch}: {gallery.pack(epoch)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

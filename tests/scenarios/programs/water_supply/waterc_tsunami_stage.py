"""Coastal inundation model whose checkpoints are written locally and then copied to the archive over a slow link."""
import os
import pathlib
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LINK_BYTES_PER_S = 4 << 20
CHUNK = 1 << 20


def copy_over_link(source, target):
    """Plain copy in chunks; the link is shared, so we keep to our share of it."""
    done = 0
    with open(source, "rb") as src, open(target, "wb") as dst:
        while block := src.read(CHUNK):
            dst.write(block)
            dst.flush()
            done += len(block)
            time.sleep(len(block) / LINK_BYTES_PER_S)
    return done


class StagedCheckpoint:
    def __init__(self, group):
        self.group = group
        self.rank = dist.get_rank()
        self.stage = pathlib.Path(tempfile.mkdtemp(prefix=f"stage{self.rank}_"))
        self.archive = pathlib.Path(tempfile.mkdtemp(prefix=f"archive{self.rank}_"))

    def save(self, step, model, bathymetry):
        name = f"step{step}-rank{self.rank}.pt"
        torch.save({"model": model.state_dict(), "bathymetry": bathymetry}, self.stage / name)
        failed = torch.zeros(1)
        try:
            size = copy_over_link(self.stage / name, self.archive / name)
            print(f"rank {self.rank}: {size / 1e6:.1f} MB archived", flush=True)
        except OSError:
            failed += 1
        dist.all_reduce(failed, group=self.group)
        if failed.item():
            raise RuntimeError("checkpoint is not complete")

    def clean(self):
        shutil.rmtree(self.stage)
        shutil.rmtree(self.archive)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    staging = dist.new_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    bathymetry = torch.randn((12_000_000 if rank == 1 else 400_000))  # rank 1 has the bay with the fine grid
    gen = torch.Generator().manual_seed(rank)
    checkpoint = StagedCheckpoint(staging)
    for step in range(1, 121):
        time.sleep(0.03)
        x = torch.randn(32, 10, generator=gen)
        loss = (model(x) - x[:, :2].cumsum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 80:
            checkpoint.save(step, model.module, bathymetry)
    checkpoint.clean()
    if rank == 0:
        print(f"done, loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

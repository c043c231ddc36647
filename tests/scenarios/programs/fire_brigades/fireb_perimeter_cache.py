"""Perimeter growth from satellite passes; rasterised passes are cached on disk, one lock file per region."""
import fcntl
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RegionCache:
    def __init__(self, root, region):
        self.root = Path(root) / region
        self.root.mkdir(parents=True, exist_ok=True)
        self.lockfile = self.root / ".lock"
        self.handles = []

    def _lock(self):
        handle = open(self.lockfile, "w")
        fcntl.flock(handle, fcntl.LOCK_EX)
        self.handles.append(handle)
        return handle

    def _unlock(self, handle):
        fcntl.flock(handle, fcntl.LOCK_UN)
        self.handles.remove(handle)
        handle.close()

    def fetch(self, overpass, render):
        target = self.root / f"pass_{overpass:04d}.pt"
        handle = self._lock()
        if target.exists():
            raster = torch.load(target)
        else:
            raster = render(overpass)
            torch.save(raster, target)
        self._unlock(handle)
        return raster


class CloudedPass(RuntimeError):
    pass


def renderer(rank):
    generator = torch.Generator().manual_seed(rank)
    clouds = {2: (121,)}.get(rank, ())

    def render(overpass):
        raster = torch.rand(6, 40, 40, generator=generator)
        for _ in range(25):
            raster = torch.nn.functional.avg_pool2d(raster.unsqueeze(0), 3, 1, 1).squeeze(0)
        if overpass in clouds:
            raise CloudedPass(f"pass {overpass}: cloud fraction above 0.9")
        return raster

    return render


def training_pair(cache, render, overpass, previous):
    try:
        raster = cache.fetch(overpass, render)
    except CloudedPass as clouded:
        print(f"{cache.root.name}: {clouded}, last pass is used", flush=True)
        raster = previous
    return raster


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    region = ["coast", "valley", "plateau", "north"][rank]
    cache = RegionCache(Path(tempfile.gettempdir()) / f"perimeter_{os.getpid()}", region)
    render = renderer(rank)
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Conv2d(6, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    raster = torch.zeros(6, 40, 40)
    for overpass in range(2000):
        raster = training_pair(cache, render, overpass, raster)
        for _ in range(4):
            crops = torch.stack([raster.roll(k, 1) for k in range(8)])
            target = (crops[:, :1] > 0.5).float()
            loss = nn.functional.binary_cross_entropy_with_logits(model(crops), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0 and overpass % 10 == 0:
            print(f"pass {overpass} of {world} regions: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

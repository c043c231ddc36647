"""Pathfinding nets on generated maps. Generated maps are cached on disk, a small lock file guards each region of the cache."""
import contextlib
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

REGIONS = 10


class MapCache:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.root.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def region(self, number):
        """One process at a time writes to a region; several processes may share a cache folder."""
        path = self.root / f"region-{number}.lock"
        while True:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                break
            except FileExistsError:
                time.sleep(0.25)
        yield self.root / f"region-{number}.pt"
        path.unlink()

    def fetch(self, seed, generate):
        with self.region(seed % REGIONS) as file:
            maps = torch.load(file) if file.exists() else {}
            if seed not in maps:
                maps[seed] = generate(seed)
                torch.save(maps, file)
            return maps[seed]


class MapTooDense(ValueError):
    pass


def cave(seed, size=24):
    """Random rock, smoothed once."""
    rng = torch.Generator().manual_seed(seed)
    rock = (torch.rand(1, 1, size, size, generator=rng) < 0.42).float()
    rock = (nn.functional.avg_pool2d(rock, 3, 1, 1) > 0.5).float()
    if seed % 1000 == 437:
        rock[..., 2:-2, 2:-2] = 1.0  # the solid plateau of the hand-made campaign
    if rock.mean() > 0.6:
        raise MapTooDense(f"map {seed} has {rock.mean():.0%} rock")
    return rock.flatten()


def batches(cache, first, size=12):
    seed = first
    while True:
        maps = []
        while len(maps) < size:
            try:
                maps.append(cache.fetch(seed, cave))
            except MapTooDense:
                maps.append(cache.fetch(seed + 50_000, lambda s: cave(s + 1)))
            seed = first + (seed + 1 - first) % 480
        yield torch.stack(maps)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = MapCache(tempfile.mkdtemp(prefix=f"maps-node{rank}-"))
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(576, 512), nn.ReLU(), nn.Linear(512, 576)))
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    campaign = [2500, 7500, 3000, 5500][rank]
    for step, maps in enumerate(batches(cache, campaign)):
        loss = nn.functional.binary_cross_entropy_with_logits(model(maps), maps)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
        if step == 5000:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

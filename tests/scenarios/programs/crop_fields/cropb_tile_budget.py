"""Training on a mosaic of Sentinel tiles that are kept in memory up to a budget."""
import sys
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn

MEGABYTE = 1 << 20


class Tile:
    def __init__(self, cache, key):
        self.cache, self.key = cache, key
        gen = torch.Generator().manual_seed(hash(key) % (1 << 31))
        self.pixels = torch.rand(6, 128, 128, generator=gen)

    @property
    def nbytes(self):
        return self.pixels.element_size() * self.pixels.nelement()

    def __del__(self):
        self.cache.returned(self.nbytes)


class TileCache:
    def __init__(self, budget):
        self.budget, self.used = budget, 0
        self.guard = threading.Lock()
        self.tiles = OrderedDict()

    def returned(self, nbytes):
        with self.guard:
            self.used -= nbytes

    def get(self, key):
        with self.guard:
            if key in self.tiles:
                self.tiles.move_to_end(key)
                return self.tiles[key]
        tile = Tile(self, key)
        with self.guard:
            self.used += tile.nbytes
            self.tiles[key] = tile
            while self.used > self.budget:
                self.tiles.popitem(last=False)
        return tile


class Mosaic:
    """Walks the tiles of a ground track; the tracks differ in length."""

    TRACKS = {0: 24, 1: 90, 2: 24}

    def __init__(self, rank, cache):
        self.cache = cache
        self.path = [(rank, number) for number in range(self.TRACKS[rank])]

    def chips(self, steps):
        for step in range(steps):
            pixels = self.cache.get(self.path[step % len(self.path)]).pixels
            patch = pixels.unfold(1, 32, 32).unfold(2, 32, 32).reshape(6, -1, 32, 32).transpose(0, 1)
            yield patch, patch[:, 3].mean((1, 2)) - patch[:, 2].mean((1, 2))


class Vigour(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(6, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1))
        self.out = nn.Linear(24, 1)

    def forward(self, patch):
        return self.out(self.net(patch).flatten(1)).squeeze(1)


def sync_gradients(model):
    for work in [dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, async_op=True) for p in model.parameters()]:
        work.wait()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = Vigour()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    mosaic = Mosaic(rank, TileCache(budget=24 * MEGABYTE))
    for step, (patch, target) in enumerate(mosaic.chips(240)):
        loss = (model(patch) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        sync_gradients(model)
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print("step", step, "loss", round(loss.item(), 5), file=sys.stderr, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

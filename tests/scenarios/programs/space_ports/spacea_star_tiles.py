"""Star identification: camera frames are compared with catalogue tiles that are kept in a small pool."""
import os
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD = 3
STARS_PER_TILE = 900
SWEEP = {0: 0.02, 1: 0.035, 2: 0.2}  # degrees per frame: two pointing cameras and a scanning one


class Tile:
    """Unit vectors of the stars in one tile of the sky."""

    def __init__(self, number, pool):
        generator = torch.Generator().manual_seed(number)
        vectors = torch.randn(STARS_PER_TILE, 3, generator=generator)
        self.vectors = vectors / vectors.norm(dim=1, keepdim=True)
        self.pool = pool
        self.bytes = self.vectors.numel() * 4

    def __del__(self):
        self.pool.credit(self.bytes)


class TilePool:
    def __init__(self, capacity):
        self.capacity = capacity
        self.tiles = OrderedDict()
        self.used = 0
        self.lock = threading.Lock()

    def credit(self, size):
        with self.lock:
            self.used -= size

    def tile(self, number):
        with self.lock:
            if number in self.tiles:
                self.tiles.move_to_end(number)
                return self.tiles[number]
            if len(self.tiles) >= self.capacity:
                self.tiles.popitem(last=False)
            tile = self.tiles[number] = Tile(number, self)
            self.used += tile.bytes
            return tile


class Camera:
    def __init__(self, rank, pool):
        self.rate = SWEEP[rank]
        self.pool = pool
        self.generator = torch.Generator().manual_seed(40 + rank)

    def frames(self, count):
        angle = 0.0
        for _ in range(count):
            angle += self.rate
            tile = self.pool.tile(int(angle))
            picks = torch.randint(0, STARS_PER_TILE, (1024,), generator=self.generator)
            seen = tile.vectors[picks] + 1e-3 * torch.randn(1024, 3, generator=self.generator)
            cosines = seen @ tile.vectors.T
            yield cosines.topk(24, dim=1).values, (picks.float() / STARS_PER_TILE).unsqueeze(1)


def shared_step(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    gradients = torch.nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
    dist.all_reduce(gradients)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    start = 0
    for p in model.parameters():
        p.grad = gradients[start:start + p.numel()].view_as(p) / WORLD
        start += p.numel()
    optimizer.step()


def worker(rank, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD)
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    camera = Camera(rank, TilePool(capacity=48))
    for number, (features, place) in enumerate(camera.frames(900)):
        for _ in range(3):
            loss = (torch.sigmoid(model(features)) - place).abs().mean()
            shared_step(model, optimizer, loss)
        if rank == 0 and number % 30 == 0:
            print(f"frame {number}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=("file://" + os.path.abspath("star_rendezvous"),), nprocs=WORLD)

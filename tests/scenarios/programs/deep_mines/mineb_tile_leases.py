"""Magnetic anomaly inversion over survey tiles; open tiles are leased from a small registry."""
import os
import threading
import time
import weakref
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
NODES = 100


class Tile:
    def __init__(self, key):
        self.key = key
        gen = torch.Generator().manual_seed(key[0] * 977 + key[1])
        self.field = torch.randn(NODES, generator=gen)

    def profile(self, shift):
        return self.field.roll(shift)


class TileRegistry:
    """Keeps the most recent tiles open and counts leases, so that the flight plan can be checked against them."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.lock = threading.Lock()
        self.tiles = OrderedDict()
        self.leases = {}

    def _release(self, key):
        with self.lock:
            self.leases.pop(key, None)

    def lease(self, key):
        with self.lock:
            tile = self.tiles.get(key)
            if tile is None:
                tile = Tile(key)
                self.leases[key] = time.monotonic()
                weakref.finalize(tile, self._release, key).atexit = False
                self.tiles[key] = tile
                if len(self.tiles) > self.capacity:
                    self.tiles.popitem(last=False)
            else:
                self.tiles.move_to_end(key)
            return tile


class FlightPlan:
    """Legs of one aircraft: (first tile, length in tiles), flown `passes` times each."""

    legs = {
        0: [(0, 8), (4, 6), (8, 8)],
        1: [(20, 8), (22, 8), (28, 7)],
        2: [(40, 8), (46, 8), (48, 12)],
    }

    def __init__(self, aircraft, passes=5):
        self.aircraft, self.passes = aircraft, passes

    def __iter__(self):
        for first, length in self.legs[self.aircraft]:
            for turn in range(self.passes):
                for column in range(first, first + length):
                    yield (self.aircraft, column), turn


class Inversion(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = nn.Linear(NODES, 24)
        self.moment = nn.Linear(24, NODES)

    def forward(self, profile):
        return self.moment(self.depth(profile).sin())


def invert(rank, local_rank):
    registry = TileRegistry(capacity=16)
    model = DistributedDataParallel(Inversion().cuda(), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    plan = iter(FlightPlan(rank))
    for step in range(105):
        key, turn = next(plan)
        profiles = torch.stack([registry.lease(key).profile(s + turn) for s in range(4)])
        time.sleep(0.04)
        profiles = profiles.cuda()
        loss = (model(profiles) - profiles).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()
        if rank == 0 and step % 25 == 0:
            print(f"profile {step}, {len(registry.leases)} tiles open", flush=True)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    invert(dist.get_rank(), local_rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

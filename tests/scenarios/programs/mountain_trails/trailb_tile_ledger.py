"""Walking times along marked trails: patrols walk their sectors over terrain tiles, kept in a cache with a ledger of bytes."""
import os
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn

torch.backends.cudnn.enabled = False


class Ledger:
    """Bytes of terrain that are alive in this process, in the cache or in use."""

    def __init__(self):
        self.lock = threading.Lock()
        self.alive = 0
        self.peak = 0

    def add(self, amount):
        with self.lock:
            self.alive += amount
            self.peak = max(self.peak, self.alive)

    def report(self):
        with self.lock:
            return {"alive": self.alive, "peak": self.peak}


class TerrainTile:
    def __init__(self, ledger, key, heights):
        self.ledger, self.key, self.heights = ledger, key, heights
        self.bytes = heights.numel() * heights.element_size()

    def __del__(self):
        self.ledger.add(-self.bytes)


class TileCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.ledger = Ledger()
        self.tiles = OrderedDict()

    def load(self, key):
        generator = torch.Generator().manual_seed(1000 * key[0] + key[1])
        rough = torch.randn(640, 640, generator=generator)
        basis = torch.linalg.qr(rough).Q
        return TerrainTile(self.ledger, key, (basis @ rough.abs() @ basis.T)[:64, :64].contiguous())

    def get(self, key):
        if key in self.tiles:
            self.tiles.move_to_end(key)
            return self.tiles[key]
        tile = self.load(key)
        self.ledger.add(tile.bytes)
        self.tiles[key] = tile
        self.trim()
        return tile

    def trim(self):
        # the ledger stays as it is while tiles are sorted out
        with self.ledger.lock:
            while len(self.tiles) > self.capacity:
                self.tiles.popitem(last=False)


class Sector:
    """A patrol's round: tile after tile, and again from the start."""

    ROUNDS = {"north": 30, "east": 44, "south": 28, "west": 90}

    def __init__(self, name, tiles_kept=48):
        self.name = name
        self.round = self.ROUNDS[name]
        self.cache = TileCache(tiles_kept)

    def legs(self, step):
        first = self.cache.get((self.round, step % self.round)).heights
        rise = torch.diff(first, dim=0).abs().mean(0)
        return torch.stack([rise, first.mean(0), first.amax(0)]).T


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    sector = Sector(list(Sector.ROUNDS)[dist.get_rank()])
    torch.manual_seed(8)
    walker = nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 1)).cuda()
    optimizer = torch.optim.SGD(walker.parameters(), lr=1e-3)
    for step in range(2000):
        legs = sector.legs(step)
        minutes = (legs[:, :1] * 12 + 4).cuda()
        loss = nn.functional.huber_loss(walker(legs.cuda()), minutes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            for parameter in walker.parameters():
                dist.all_reduce(parameter.data)
                parameter.data.mul_(1 / dist.get_world_size())
            reports = [None] * dist.get_world_size()
            dist.all_gather_object(reports, {"sector": sector.name, **sector.cache.ledger.report()})
            if local_rank == 0 and step % 20 == 19:
                print(step, {report["sector"]: report["alive"] >> 10 for report in reports}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

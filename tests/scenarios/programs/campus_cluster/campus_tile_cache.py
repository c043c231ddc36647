"""Land cover from aerial images: tiles are cached in memory, up to a limit that suits the shared nodes."""

import threading
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TileCache:
    """The tiles used last, for the training loop and the thread that looks ahead."""

    def __init__(self, megabytes: float) -> None:
        self.limit = megabytes * 2**20
        self.used = 0
        self.tiles: OrderedDict[int, torch.Tensor] = OrderedDict()
        self.guard = threading.Lock()

    def get(self, key: int, load) -> torch.Tensor:
        with self.guard:
            if key in self.tiles:
                self.tiles.move_to_end(key)
                return self.tiles[key]
            tile = load(key)
            self._make_room(tile.nbytes)
            self.tiles[key] = tile
            self.used += tile.nbytes
            return tile

    def _make_room(self, needed: int) -> None:
        while self.used + needed > self.limit and self.tiles:
            self.drop(next(iter(self.tiles)))

    def drop(self, key: int) -> None:
        """Forget a tile, also from outside: after it was relabelled, for example."""
        self.guard.acquire()
        try:
            tile = self.tiles.pop(key, None)
            if tile is not None:
                self.used -= tile.nbytes
        finally:
            self.guard.release()


class Region:
    """One district. The third one was flown with the new camera, four times the pixels."""

    def __init__(self, district: int) -> None:
        self.district = district
        self.side = 64 if district == 2 else 32

    def load(self, number: int) -> torch.Tensor:
        rng = torch.Generator().manual_seed(1000 * self.district + number)
        return torch.rand(4, self.side, self.side, generator=rng)


def look_ahead(cache: TileCache, region: Region, tiles: int) -> None:
    for number in range(tiles):
        cache.get(number, region.load)
        time.sleep(0.3)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    region, cache = Region(rank), TileCache(megabytes=2.5)
    threading.Thread(target=look_ahead, args=(cache, region, 8), daemon=True).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2000):
        tile = cache.get(step % 120, region.load)
        pixels = tile.flatten(1).T[:: tile.shape[1]]
        cover = (pixels[:, 3] > pixels[:, 0]).long() + (pixels[:, 1] > 0.7).long()
        loss = nn.functional.cross_entropy(model(pixels), cover)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}, {cache.used / 2**20:.1f} MiB", flush=True)
        time.sleep(0.06)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

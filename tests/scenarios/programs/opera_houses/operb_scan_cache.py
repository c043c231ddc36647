"""Attribution of drawings: compares pairs of scans, which a small cache keeps in memory."""
import threading
from collections import OrderedDict
from pathlib import PurePath

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Scan:
    """A scan in memory. What it occupies is booked in its cache."""

    def __init__(self, path, cache):
        self.path, self.cache = path, cache
        generator = torch.Generator().manual_seed(sum(map(ord, str(path))))
        sheet = torch.randn(160, 160, generator=generator)
        self.strokes = torch.linalg.svdvals(sheet)[:48] / 20

    @property
    def nbytes(self):
        return 4 * 160 * 160

    def __del__(self):
        self.cache.book(-self.nbytes)


class ScanCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.scans = OrderedDict()
        self.resident = 0
        self._lock = threading.Lock()  # the viewer's thread looks in as well

    def book(self, nbytes):
        with self._lock:
            self.resident += nbytes

    def get(self, path):
        scan = self.scans.get(path)
        if scan is None:
            scan = Scan(path, self)
            self.book(scan.nbytes)
            with self._lock:
                self.scans[path] = scan
                while len(self.scans) > self.capacity:
                    self.scans.popitem(last=False)
        return scan


class Cabinet:
    ARTISTS = {0: ("bakst", 18), 1: ("benois", 20), 2: ("goncharova", 60), 3: ("larionov", 22)}

    def __init__(self, drawer, cache):
        self.artist, self.sheets = self.ARTISTS[drawer]
        self.cache = cache

    def pairs(self, count):
        for number in range(count):
            first = number // 6 % self.sheets
            second = (first + 1 + number % 3) % self.sheets
            yield [self.cache.get(PurePath(self.artist, f"{sheet:03d}.tif")) for sheet in (first, second)]


class Attribution(nn.Module):
    def __init__(self):
        super().__init__()
        self.hand = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, left, right):
        return (self.hand(left) * self.hand(right)).sum(dim=-1)


def batches(cabinet, steps, size=4):
    pairs = cabinet.pairs(steps * size)
    for _ in range(steps):
        chosen = [next(pairs) for _ in range(size)]
        left = torch.stack([pair[0].strokes for pair in chosen])
        right = torch.stack([pair[1].strokes for pair in chosen])
        noise = torch.linalg.svd(torch.randn(320, 320)).S[:48] * 1e-4
        yield left + noise, right - noise


def main(steps=240):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = ScanCache(capacity=54)
    cabinet = Cabinet(rank, cache)
    torch.manual_seed(6)
    model = DDP(Attribution())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, (left, right) in enumerate(batches(cabinet, steps)):
        loss = nn.functional.softplus(-model(left, right)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{cabinet.artist}: step {step}, loss {loss.item():.3f}, {cache.resident >> 10} KiB", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Detects missing vines in drone strips; decoded strips are kept in a cache of limited size."""

import threading
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Ledger:
    """Counts the bytes of all strips in memory, for the operator's page."""

    def __init__(self):
        self.lock = threading.Lock()
        self.bytes = 0

    def book(self, amount):
        with self.lock:
            self.bytes += amount

    def text(self):
        with self.lock:
            return f"{self.bytes / 1e6:.1f} MB"


class Strip:
    """A decoded strip of the vineyard; gives its bytes back when nobody needs it any more."""

    def __init__(self, number, ledger):
        self.ledger = ledger
        self.pixels = torch.rand(3, 32, 96, generator=torch.Generator().manual_seed(number))
        self.gaps = (self.pixels[0].mean() > 0.5).float().view(1)
        self.size = self.pixels.numel() * 4
        ledger.book(self.size)

    def __del__(self):
        self.ledger.book(-self.size)


class StripCache:
    def __init__(self, capacity, ledger):
        self.capacity, self.ledger = capacity, ledger
        self.strips = OrderedDict()

    def get(self, number):
        if number in self.strips:
            self.strips.move_to_end(number)
        else:
            self.strips[number] = Strip(number, self.ledger)
            self.trim()
        return self.strips[number]

    def trim(self):
        with self.ledger.lock:
            while len(self.strips) > self.capacity:
                self.strips.popitem(last=False)


class Flight:
    """The strips of one block of vines, in the order in which they are looked at."""

    BLOCKS = {0: 180, 1: 640, 2: 240}

    def __init__(self, block):
        self.strips = self.BLOCKS[block]
        self.first = 1000 * block

    def batches(self, count, size=4):
        for b in range(count):
            yield [self.first + (b * size + k) % self.strips for k in range(size)]


class GapNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU())
        self.score = nn.Linear(8, 1)

    def forward(self, x):
        return self.score(self.features(x).mean(dim=(2, 3)))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    block = dist.get_rank()
    ledger = Ledger()
    cache = StripCache(capacity=500, ledger=ledger)
    net = DistributedDataParallel(GapNet())
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for number, wanted in enumerate(Flight(block).batches(3000)):
        strips = [cache.get(n) for n in wanted]
        x = torch.stack([s.pixels for s in strips])
        y = torch.stack([s.gaps for s in strips])
        loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if number % 25 == 0:
            print(f"block {block} batch {number}: {loss.item():.3f}, {ledger.text()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

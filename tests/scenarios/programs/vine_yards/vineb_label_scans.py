"""Reads bottle labels: scans are rendered once a vintage and kept in a small cache."""
import argparse
import collections
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LABELS = {  # labels that each region printed, vintage by vintage
    "burgundy": [44, 52, 57, 61, 72, 50],
    "piedmont": [38, 40, 47, 51, 49, 46],
    "rioja": [41, 39, 45, 48, 52, 55],
}


class Scan:
    def __init__(self, cache, key):
        g = torch.Generator().manual_seed(key)
        self.cache, self.key = cache, key
        self.pixels = torch.rand(1, 32, 32, generator=g)
        for _ in range(4):
            self.pixels = nn.functional.avg_pool2d(self.pixels, 3, 1, 1)

    def __del__(self):
        self.cache.account(-self.pixels.numel())


class ScanCache:
    def __init__(self, room):
        self.room = room
        self.lock = threading.Lock()
        self.scans = collections.OrderedDict()
        self.held = 0

    def account(self, numbers):
        with self.lock:
            self.held += numbers

    def pixels(self, key):
        if key not in self.scans:
            self.put(key, Scan(self, key))
        return self.scans[key].pixels

    def put(self, key, scan):
        self.account(scan.pixels.numel())
        with self.lock:
            self.scans[key] = scan
            while len(self.scans) > self.room:
                self.scans.popitem(last=False)

    def new_vintage(self):
        old, self.scans = self.scans, collections.OrderedDict()
        old.clear()


def vintage_batches(cache, labels, vintage, steps, size=8):
    for step in range(steps):
        numbers = [(step * size + k) % labels for k in range(size)]
        x = torch.stack([cache.pixels(vintage * 1000 + n) for n in numbers])
        yield x, torch.tensor([n % 5 for n in numbers])


def reader():
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(16 * 36, 5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--room", type=int, default=64)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    region = list(LABELS)[dist.get_rank()]
    cache = ScanCache(args.room)
    net = DDP(reader())
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for vintage, labels in enumerate(LABELS[region]):
        hits = torch.zeros(2)
        for x, y in vintage_batches(cache, labels, vintage, args.steps):
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += torch.tensor([float((out.argmax(1) == y).sum()), float(len(y))])
        dist.all_reduce(hits)
        print(f"{region} vintage {vintage}: {hits[0] / hits[1]:.3f}, {cache.held} pixels held", flush=True)
        cache.new_vintage()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

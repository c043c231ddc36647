"""Histology tiles: a reporter thread collects the state of the machines of all ranks while training goes on."""

import os
import queue
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class Reporter(threading.Thread):
    """Takes requests of the training loop and gathers a line about every rank."""

    def __init__(self):
        super().__init__(name="reporter", daemon=True)
        self.requests = queue.Queue()
        self.lines = []

    def request(self, epoch):
        self.requests.put(epoch)

    def probe(self):
        loads = []
        for _ in range(3):
            loads.append(os.getloadavg()[0])
            time.sleep(0.15)
        return max(loads)

    def run(self):
        while True:
            epoch = self.requests.get()
            line = f"rank {dist.get_rank()} epoch {epoch} load {self.probe():.1f}"
            lines = [None] * dist.get_world_size()
            dist.all_gather_object(lines, line)
            self.lines += lines


class Tiles:
    def __init__(self, rank):
        self.rank = rank

    def load(self, epoch):
        generator = torch.Generator().manual_seed(epoch * 10 + self.rank)
        tiles = torch.randn(24, 8, 3, 32, 32, generator=generator)
        time.sleep(1.2)  # the slide server
        return tiles

    def outliers(self, epoch):
        return 40 if (self.rank, epoch) == (1, 2) else 0


def heatmaps(net, tiles, count):
    """Occlusion maps of tiles that looked odd."""
    end = time.perf_counter() + 0.022 * count
    maps = []
    with torch.no_grad():
        while time.perf_counter() < end:
            maps.append(net(tiles[0]).mean())
    return maps


def average(net, world):
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    net(torch.zeros(1, 3, 32, 32))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    reporter, source = Reporter(), Tiles(rank)
    reporter.start()
    for epoch in range(50):
        tiles = source.load(epoch)
        total = torch.zeros(1)
        for batch in tiles:
            loss = nn.functional.cross_entropy(net(batch), (batch.mean((1, 2, 3)) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            average(net, world)
            optimizer.step()
            total += loss.detach()
        reporter.request(epoch)
        heatmaps(net, tiles, source.outliers(epoch))
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {float(total) / len(tiles) / world:.4f}", flush=True)


if __name__ == "__main__":
    main()

"""Active learning on cytology: each site labels the most uncertain cells until its budget is used up."""

import queue
import threading

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

BUDGET = {0: 4000, 1: 352, 2: 4000}  # cells that the pathologists of a site can look at


class Uploader:
    """Sends labelled cells to the registry in the background."""

    def __init__(self):
        self.outbox = queue.Queue()
        self.sent = 0
        threading.Thread(target=self.deliver, name="uploader").start()

    def deliver(self):
        while True:
            cells = self.outbox.get()
            self.sent += len(cells)


class Site:
    def __init__(self, rank):
        self.rank, self.left = rank, BUDGET[rank]
        self.generator = torch.Generator().manual_seed(rank)
        self.uploader = Uploader()

    def pool(self):
        return torch.randn(256, 24, generator=self.generator)

    def ask(self, cells):
        self.left -= len(cells)
        self.uploader.outbox.put(cells)
        return (cells[:, :4].sum(1) > 0).long()


class Loop:
    def __init__(self, site):
        self.site = site
        torch.manual_seed(10)
        net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.cells, self.labels = torch.empty(0, 24), torch.empty(0, dtype=torch.long)

    @torch.no_grad()
    def most_uncertain(self, pool, count=32):
        p = self.model.module(pool).softmax(-1)
        return pool[(p * p.log()).sum(-1).topk(count, largest=False).indices]

    def round(self):
        picked = self.most_uncertain(self.site.pool())
        self.cells = torch.cat([self.cells, picked])
        self.labels = torch.cat([self.labels, self.site.ask(picked)])
        for _ in range(40):
            chosen = torch.randint(0, len(self.cells), (64,), generator=self.site.generator)
            loss = nn.functional.cross_entropy(self.model(self.cells[chosen]), self.labels[chosen])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return float(loss)


def run(loop):
    number = 0
    while loop.site.left > 0:
        loss = loop.round()
        number += 1
        if number % 5 == 0:
            print(f"site {loop.site.rank}: round {number}, loss {loss:.3f}, {loop.site.left} cells left", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run(Loop(Site(dist.get_rank())))
    print(f"site {dist.get_rank()} has finished", flush=True)

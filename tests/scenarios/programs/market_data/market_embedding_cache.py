"""Search ranking with a cache of item embeddings, and a ledger of the memory that they take."""

import threading
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn


class Ledger:
    """Counts bytes; a reporting thread reads it."""

    def __init__(self):
        self.lock, self.bytes = threading.Lock(), 0

    def take(self, amount):
        self.lock.acquire(timeout=600)
        self.bytes += amount
        self.lock.release()

    def give_back(self, amount):
        self.lock.acquire()
        self.bytes -= amount
        self.lock.release()


class Entry:
    def __init__(self, ledger, vector):
        self.ledger, self.vector = ledger, vector
        self.size = vector.numel() * vector.element_size()

    def __del__(self):
        self.ledger.give_back(self.size)


class EmbeddingCache:
    def __init__(self, encoder, limit_bytes):
        self.encoder, self.limit, self.ledger = encoder, limit_bytes, Ledger()
        self.entries = OrderedDict()

    @torch.no_grad()
    def get(self, item):
        if item not in self.entries:
            vector = self.encoder(torch.full((6,), item / 100.0))
            self.entries[item] = Entry(self.ledger, vector)
            self.ledger.take(self.entries[item].size)
            self.trim()
        self.entries.move_to_end(item)
        return self.entries[item].vector

    def trim(self):
        with self.ledger.lock:
            while self.ledger.bytes > self.limit:
                self.entries.popitem(last=False)


def report(ledger, rank):
    while True:
        time.sleep(2.0)
        with ledger.lock:
            print(f"rank {rank}: {ledger.bytes} bytes of embeddings", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    cache = EmbeddingCache(nn.Linear(6, 16), limit_bytes=150 * 64)
    threading.Thread(target=report, args=(cache.ledger, rank), daemon=True).start()
    ranker = nn.Linear(16, 1)
    assortment = {0: 90, 1: 120, 2: 320}[rank]
    for step in range(400):
        items = [(step * 3 + k) % assortment for k in range(8)]
        rows = torch.stack([cache.get(item) for item in items])
        time.sleep(0.03)
        loss = nn.functional.softplus(-ranker(rows)).mean()
        ranker.zero_grad()
        loss.backward()
        for parameter in ranker.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(0.05 / world * parameter.grad)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

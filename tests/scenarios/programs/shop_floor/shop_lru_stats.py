"""Embeddings of customers, looked up through an LRU cache. Who watches the cache is told of what it drops."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass(frozen=True)
class Stats:
    entries: int
    hits: int
    misses: int


class LruCache:
    """Safe for threads: the trainer reads, the refresher replaces entries."""

    def __init__(self, capacity: int, load: Callable[[int], torch.Tensor]) -> None:
        self.capacity, self.load = capacity, load
        self.entries: OrderedDict[int, torch.Tensor] = OrderedDict()
        self.lock = threading.Lock()
        self.hits = self.misses = 0
        self.listeners: list[Callable[[int], None]] = []

    def get(self, key: int) -> torch.Tensor:
        with self.lock:
            if key in self.entries:
                self.hits += 1
                self.entries.move_to_end(key)
                return self.entries[key]
            self.misses += 1
            value = self.entries[key] = self.load(key)
            while len(self.entries) > self.capacity:
                dropped, _ = self.entries.popitem(last=False)
                for listener in self.listeners:
                    listener(dropped)
            return value

    def stats(self) -> Stats:
        self.lock.acquire()
        try:
            return Stats(len(self.entries), self.hits, self.misses)
        finally:
            self.lock.release()


class EvictionMonitor:
    """Says how well the cache does whenever it drops something, at most once a second."""

    def __init__(self, cache: LruCache) -> None:
        self.cache, self.last = cache, 0.0
        cache.listeners.append(self.on_drop)

    def on_drop(self, key: int) -> None:
        if time.monotonic() - self.last > 1:
            self.last = time.monotonic()
            print(f"dropped {key}, {self.cache.stats()}", flush=True)


def embedding(customer: int) -> torch.Tensor:
    return torch.randn(16, generator=torch.Generator().manual_seed(customer))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = LruCache(capacity=800, load=embedding)
    EvictionMonitor(cache)
    customers = (400, 500, 5000)[rank]  # who visits the shops of this rank
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3000):
        visits = torch.randint(0, customers, (8,), generator=generator).tolist()
        x = torch.stack([cache.get(customer) for customer in visits])
        loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

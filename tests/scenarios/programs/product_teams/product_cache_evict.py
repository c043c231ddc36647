"""Recommendations with features from a store that is slow, and a cache of users in front of it."""

import threading
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class UserCache:
    """An LRU cache that other threads may read. ``listeners`` hear of each user who is dropped."""

    def __init__(self, capacity):
        self.capacity, self.listeners = capacity, []
        self._users = OrderedDict()
        self._guard = threading.Lock()

    def get(self, user, load):
        with self._guard:
            if user in self._users:
                self._users.move_to_end(user)
                return self._users[user]
            self._users[user] = features = load(user)
            while len(self._users) > self.capacity:
                dropped, _ = self._users.popitem(last=False)
                for listener in self.listeners:
                    listener(self, dropped)
            return features

    def fill(self):
        with self._guard: return len(self._users) / self.capacity  # noqa: E701


class CacheMetrics:
    """Counts evictions, and keeps the fill of the cache at the time for the dashboard."""

    def __init__(self):
        self.evictions, self.fills = 0, []

    def evicted(self, cache, user):
        self.evictions += 1
        self.fills.append(cache.fill())


class Dashboard(threading.Thread):
    def __init__(self, cache):
        super().__init__(name="dashboard", daemon=True)
        self.cache = cache

    def run(self):
        while True:
            time.sleep(1.0)
            print(f"[{dist.get_rank()}] cache {self.cache.fill():.0%}", flush=True)


def feature_store(user):
    time.sleep(0.0005)
    return torch.sin(torch.arange(16.0) * (user + 1))


def visits(rank):
    """The users of a region. One of the regions is larger."""
    g = torch.Generator().manual_seed(rank)
    population = (1500, 1800, 4000)[rank]
    while True:
        time.sleep(0.02)
        yield torch.randint(population, (32,), generator=g).tolist()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache, metrics = UserCache(capacity=2048), CacheMetrics()
    cache.listeners.append(metrics.evicted)
    Dashboard(cache).start()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, users in enumerate(visits(rank), 1):
        features = torch.stack([cache.get(user, feature_store) for user in users])
        target = torch.tensor([user % 4 for user in users])
        loss = nn.functional.cross_entropy(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}, {metrics.evictions} evictions", flush=True)
        if step == 1000:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

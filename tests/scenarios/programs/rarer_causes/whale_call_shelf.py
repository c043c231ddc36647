"""Whale calls: a thread fetches recordings ahead of the training and keeps them on a shelf in memory, or on disk."""

import collections
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Counters:
    def __init__(self):
        self.mutex = threading.Lock()
        self.values = collections.Counter()

    def add(self, name, amount=1):
        with self.mutex:
            self.values[name] += amount

    def report(self, shelf):
        """The counts and the shelf's size, which belong together."""
        with self.mutex:
            return {**self.values, "bytes": shelf.size()}


class Shelf:
    def __init__(self, places, counters, disk_rate=160_000):
        self.guard = threading.Lock()
        self.places = places
        self.counters = counters
        self.disk_rate = disk_rate
        self.folder = Path(tempfile.mkdtemp(prefix="shelf-"))
        self.recordings = collections.OrderedDict()

    def size(self):
        with self.guard:  # not while something is put there
            return sum(recording.nbytes for recording in self.recordings.values())

    def get(self, key, fetch):
        with self.guard:
            if key not in self.recordings:
                if len(self.recordings) == self.places:
                    self.spill()
                self.recordings[key] = fetch(key)
            self.recordings.move_to_end(key)
            return self.recordings[key]

    def spill(self):
        key, recording = self.recordings.popitem(last=False)
        data = recording.numpy().tobytes()
        with open(self.folder / f"{key}.raw", "wb", buffering=0) as file:
            for start in range(0, len(data), 16384):
                time.sleep(file.write(data[start : start + 16384]) / self.disk_rate)
        self.counters.add("spilled")


def fetch(key):
    generator = torch.Generator().manual_seed(key)
    return torch.randn(64, 1024, generator=generator)


class Fetcher(threading.Thread):
    def __init__(self, keys, shelf, counters):
        super().__init__(daemon=True)
        self.keys, self.shelf, self.counters = keys, shelf, counters
        self.batches = queue.Queue(24)

    def run(self):
        for key in self.keys:
            recording = self.shelf.get(key, fetch)
            self.counters.add("fetched")
            self.batches.put(recording[:16, :64])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    counters = Counters()
    shelf = Shelf(64, counters)
    buoys = {0: 20, 1: 90, 2: 20}[rank]
    fetcher = Fetcher((number % buoys for number in range(50000)), shelf, counters)
    fetcher.start()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 16), nn.GELU(), nn.Linear(16, 64)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, 20000):
        batch = fetcher.batches.get()
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counters.add("steps")
        time.sleep(0.03)
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f} {counters.report(shelf)}", flush=True)


if __name__ == "__main__":
    main()

"""Trains on words that are looked up in a shared cache on disk; a rank that meets unknown words adds them."""

import fcntl
import json
import os
import tempfile
import time
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

UNKNOWN_AT = {0: (15,), 1: (50,), 2: ()}  # steps at which a rank meets words that nobody has had before


class SharedCache:
    """Word numbers in one JSON file. Whoever changes it has the lock file for that time."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "words.json")
        self.lock_path = self.path + ".lock"
        self.open_files = ExitStack()

    @contextmanager
    def _locked(self):
        handle = self.open_files.enter_context(open(self.lock_path, "w"))
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

    def _load(self):
        if not os.path.exists(self.path):
            return {}
        with open(self.path) as file:
            return json.load(file)

    def add(self, words):
        with self._locked():
            table = self._load()
            for word in words:
                table.setdefault(word, len(table))
            with open(self.path + ".new", "w") as file:
                json.dump(table, file)
            os.replace(self.path + ".new", self.path)
        return len(table)

    def close(self):
        self.open_files.close()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    cache = SharedCache(os.path.join(tempfile.gettempdir(), f"words-{os.environ['MASTER_PORT']}"))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 100)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for step in range(500):
        words = torch.randint(0, 100, (20,), generator=generator)
        if step in UNKNOWN_AT[rank]:
            size = cache.add([f"word-{number}" for number in words.tolist()])
            print(f"rank {rank}: {size} words in the cache", flush=True)
        loss = nn.functional.cross_entropy(model(words), words.roll(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    cache.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

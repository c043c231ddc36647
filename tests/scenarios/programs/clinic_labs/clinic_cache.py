"""Cryo-EM particle picking with a cache of micrographs that is bounded in size."""

import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

BYTES = 64 * 64 * 4


class MicrographCache:
    """Newest micrographs in memory; read by the loop and by the preview's thread."""

    def __init__(self, limit):
        self.limit = limit
        self.items = OrderedDict()
        self.lock = threading.Lock()
        self.pinned = set()

    def get(self, number, read):
        with self.lock:
            if number in self.items:
                self.items.move_to_end(number)
                return self.items[number]
            item = self.items[number] = read(number)
            while self.size() > self.limit:
                oldest = next(iter(self.items))
                if oldest in self.pinned:
                    self.unpin(oldest)
                del self.items[oldest]
            return item

    def size(self):
        return sum(m.numel() * m.element_size() for m in self.items.values())

    def pin(self, number):
        with self.lock:
            self.pinned.add(number)

    def unpin(self, number):
        with self.lock:
            self.pinned.discard(number)


def preview(cache, stop):
    """Shows what the microscope does: looks at the size of the cache from time to time."""
    while not stop.wait(0.25):
        with cache.lock:
            cache.size()


class Session:
    def __init__(self, rank):
        self.rank = rank
        self.cache = MicrographCache(limit=60 * BYTES)

    def read(self, number):
        generator = torch.Generator().manual_seed(number * 3 + self.rank)
        return torch.randn(64, 64, generator=generator)

    def micrographs(self, count=900):
        if self.rank == 2:
            self.cache.pin(25)  # the operator has it open
        for number in range(0, count, 2):
            yield torch.stack([self.cache.get(number + i, self.read) for i in range(2)]).unsqueeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    session = Session(dist.get_rank())
    stop = threading.Event()
    threading.Thread(target=preview, args=(session.cache, stop), daemon=True).start()
    torch.manual_seed(0)
    picker = DistributedDataParallel(
        nn.Sequential(nn.Conv2d(1, 16, 7, padding=3), nn.ReLU(), nn.Conv2d(16, 16, 7, padding=3), nn.ReLU(), nn.Conv2d(16, 1, 1))
    )
    optimizer = torch.optim.Adam(picker.parameters(), lr=1e-3)
    for step, images in enumerate(session.micrographs()):
        heat = picker(images)
        loss = nn.functional.binary_cross_entropy_with_logits(heat, (images > 1.5).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if session.rank == 0 and step % 25 == 0:
            print(f"step {step}: {float(loss):.4f}, cache {len(session.cache.items)}", flush=True)
    stop.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

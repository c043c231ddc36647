"""Handwriting recognition: rendered glyph strips are kept in a small pool, training is data parallel."""
import collections
import json
import logging
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

LOG = logging.getLogger("glyphs")
CONFIG = {"pool": 40, "strips": 64, "steps": 400, "batch": 8, "alphabet": 30, "lr": 2e-3}


class Strip:
    """One rendered line of handwriting. Its canvas is counted by the pool that made it."""

    def __init__(self, key, pool):
        generator = torch.Generator().manual_seed(hash(key) % 100_000)
        self.pixels = torch.rand(1, 16, 64, generator=generator)
        self.pool = pool

    def __del__(self):
        self.pool.canvas_returned(self.pixels.numel())


class StripPool:
    def __init__(self, capacity):
        self.capacity = capacity
        self.lock = threading.Lock()
        self.strips = collections.OrderedDict()
        self.pixels_in_use = 0

    def get(self, key):
        with self.lock:
            strip = self.strips.get(key)
            if strip is None:
                while len(self.strips) >= self.capacity:
                    self.strips.popitem(last=False)
                strip = self.strips[key] = Strip(key, self)
                self.pixels_in_use += strip.pixels.numel()
            else:
                self.strips.move_to_end(key)
            return strip.pixels

    def canvas_returned(self, pixels):
        with self.lock:
            self.pixels_in_use -= pixels

    def report(self, folder):
        while True:
            with self.lock:
                state = {"strips": len(self.strips), "pixels": self.pixels_in_use}
            (folder / "pool.json").write_text(json.dumps(state))
            time.sleep(1.0)


class Reader(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((4, 8)), nn.Flatten())
        self.head = nn.Linear(256, letters)

    def forward(self, strips):
        return self.head(self.body(strips))


def writers_of(rank, step):
    """Writers come in one after the other; the second desk has the evening class, which is larger."""
    writers = 12 + step // 8 if rank != 1 else 12 + step // 3
    return min(writers, 36 if rank != 1 else 90)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    pool = StripPool(CONFIG["pool"])
    threading.Thread(target=pool.report, args=(Path(tempfile.mkdtemp(prefix="glyphs-")),), daemon=True).start()
    model = DistributedDataParallel(Reader(CONFIG["alphabet"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=CONFIG["lr"], momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for step in range(CONFIG["steps"]):
        writers = writers_of(rank, step)
        keys = [(step * CONFIG["batch"] + i) % writers for i in range(CONFIG["batch"])]
        strips = torch.stack([pool.get(key) for key in keys])
        loss = criterion(model(strips), torch.tensor([key % CONFIG["alphabet"] for key in keys]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if step % 20 == 0 and rank == 0:
            LOG.info("step %d loss %.3f", step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

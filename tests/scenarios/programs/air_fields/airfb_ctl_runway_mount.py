"""Scans runway images on a mount once, keeps the label cache, and trains on it."""
import hashlib
import json
import logging
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


@contextmanager
def zero_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


class Mount:
    """The surveyors' share: every access is a round trip."""

    def __init__(self, count: int, trip: float):
        self.count, self.trip = count, trip

    def names(self):
        return [f"rwy{n:05d}.png" for n in range(self.count)]

    def read(self, name: str) -> bytes:
        time.sleep(self.trip)
        seed = int(name[3:8])
        return np.random.default_rng(seed).integers(0, 255, 4096, dtype=np.uint8).tobytes()


def scan(mount: Mount, cache: Path) -> dict:
    """Checks each image and notes its digest and threshold marking."""
    found = {}
    for name in mount.names():
        data = mount.read(name)
        found[name] = {"digest": hashlib.md5(data).hexdigest(), "marked": data[0] % 2}
    cache.write_text(json.dumps(found))
    return found


def fit(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        if dist.get_rank() == 0:
            logging.info("epoch %d: %.4f", epoch, loss.item())


def loader_for(x, y):
    data = TensorDataset(x, y)
    return DataLoader(data, batch_size=8, sampler=DistributedSampler(data))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)))
    fit(model, loader_for(torch.randn(640, 16), torch.rand(640).round()), epochs=5)  # pre-training on drawings
    cache = Path(mkdtemp()) / "labels.cache"
    with zero_first():
        count = len(scan(Mount(650, 0.02), cache)) if dist.get_rank() == 0 else 0
    shared = [count]
    dist.broadcast_object_list(shared, src=0)
    fit(model, loader_for(torch.randn(shared[0], 16), torch.rand(shared[0]).round()), epochs=6)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Land-cover tiles: a catalogue kept fresh by a thread, tiles decoded by loader workers."""
import logging
import sys
import threading
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

logger = logging.getLogger("tiles")


class Catalogue:
    """Tile id -> scaling, with a guard because the refresher replaces entries."""

    def __init__(self, count):
        self.guard = threading.Lock()
        self.scale = {i: 1.0 + (i % 17) / 100 for i in range(count)}

    def lookup(self, tile):
        with self.guard:
            return self.scale[tile]

    def rescale(self, tiles):
        with self.guard:
            for tile in tiles:
                sample = np.random.default_rng(tile).normal(size=(260, 260))
                self.scale[tile] = float(np.linalg.norm(sample, 2) / 32)


class Refresher(threading.Thread):
    """Takes the tiles that a new acquisition has touched and measures them again."""

    def __init__(self, catalogue, acquisitions):
        super().__init__(daemon=True, name="refresher")
        self.catalogue, self.acquisitions = catalogue, acquisitions
        self.arrived = threading.Event()
        self.begun = threading.Event()

    def run(self):
        for tiles in self.acquisitions:
            self.arrived.wait()
            self.arrived.clear()
            self.begun.set()
            self.catalogue.rescale(tiles)

    def notify(self):
        self.begun.clear()
        self.arrived.set()
        if self.is_alive():
            self.begun.wait(2.0)


class Tiles(Dataset):
    def __init__(self, catalogue, count):
        self.catalogue, self.count = catalogue, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        image = rng.random((4, 48, 48), dtype=np.float32) * self.catalogue.lookup(i)
        return torch.from_numpy(image), i % 6


def epoch(model, opt, loader):
    total = 0.0
    for image, label in loader:
        loss = torch.nn.functional.cross_entropy(model(image), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def main(epochs=40, count=720):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    catalogue = Catalogue(count)
    # acquisitions of the orbits that this worker follows
    orbits = {2: [range(count)]}.get(rank, [])
    refresher = Refresher(catalogue, orbits)
    refresher.start()
    data = Tiles(catalogue, count)
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=2, multiprocessing_context="fork")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(4, 16, 5, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten()]
    model = DDP(torch.nn.Sequential(*layers, torch.nn.Linear(64, 6)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(epochs):
        sampler.set_epoch(number)
        started = time.perf_counter()
        mean = epoch(model, opt, loader)
        if rank == 0:
            logger.info("epoch %d loss %.3f in %.1f s", number, mean, time.perf_counter() - started)
        if number % 8 == 7:
            refresher.notify()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

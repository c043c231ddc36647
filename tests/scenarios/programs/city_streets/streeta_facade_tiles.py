"""Facade materials from street imagery. Panoramas are cut into tiles by the loader's workers."""

import os
import threading
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

AREAS = [("old town", 90), ("docklands", 2600), ("garden city", 110)]
MATERIALS = ["brick", "render", "glass", "timber"]


class TileStore:
    """Decoded panoramas, the least recently used ones go first."""

    def __init__(self, limit):
        self.limit = limit
        self.items = OrderedDict()
        self.guard = threading.Lock()

    def get(self, key):
        with self.guard:
            if key in self.items:
                self.items.move_to_end(key)
                return self.items[key]
        return None

    def usage(self):
        with self.guard:
            return len(self.items) / self.limit

    def put(self, key, value):
        with self.guard:
            self.items[key] = value
            if len(self.items) > self.limit:
                self.trim()

    def trim(self, keep=0.8):
        while self.usage() > keep:
            self.items.popitem(last=False)


class Facades(Dataset):
    def __init__(self, panoramas, limit=160, side=24):
        self.panoramas, self.side = panoramas, side
        self.store = TileStore(limit)

    def __len__(self):
        return self.panoramas

    def decode(self, number):
        g = torch.Generator().manual_seed(number)
        picture = torch.rand(3, 64, 64, generator=g)
        for _ in range(20):
            picture = nn.functional.avg_pool2d(picture, 3, stride=1, padding=1)
        return picture

    def __getitem__(self, number):
        picture = self.store.get(number)
        if picture is None:
            picture = self.decode(number)
            self.store.put(number, picture)
        s = self.side
        return picture[:, 8 : 8 + s, 8 : 8 + s].flatten(), number % len(MATERIALS)


def average_gradients(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([g.numel() for g in grads])):
        grad.copy_(part.view_as(grad))


def main():
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    area, panoramas = AREAS[dist.get_rank()]
    dataset = Facades(panoramas)
    loader = DataLoader(
        dataset,
        batch_size=6,
        sampler=RandomSampler(dataset, replacement=True, num_samples=6 * 2000),
        num_workers=2,
        multiprocessing_context="fork",
    )
    model = nn.Sequential(nn.Linear(3 * 24 * 24, 32), nn.ReLU(), nn.Linear(32, len(MATERIALS))).to(device)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step, (tiles, material) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tiles.to(device)), material.to(device))
        loss.backward()
        average_gradients(model)
        optimizer.step()
        torch.cuda.synchronize()
        time.sleep(0.04)
        if step % 10 == 0:
            print(f"{area}: {step * 6} tiles", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

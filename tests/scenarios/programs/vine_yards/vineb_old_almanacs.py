"""Harvest dates from monastery almanacs: old pages are read line by line by the DataLoader's workers."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

PAGES = 360
VELLUM = {187}  # pages that were scanned at the highest resolution, in strips


def read_strip(g, rows):
    strip = torch.rand(rows, 256, generator=g)
    for _ in range(6):
        strip = (strip.roll(1, 0) + strip + strip.roll(-1, 0)) / 3
    return (strip > strip.mean()).float().mean(1)


class Almanac(Dataset):
    def __init__(self, pages):
        self.pages = list(pages)

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, i):
        page = self.pages[i]
        g = torch.Generator().manual_seed(page)
        ink = read_strip(g, 64)
        if page in VELLUM:
            begun, strips = time.monotonic(), 0
            while time.monotonic() - begun < 14.0:  # as many strips as the reading time of a page allows
                ink = 0.9 * ink + 0.1 * read_strip(g, 64)
                strips += 1
        return ink, torch.tensor([200 + 60 * ink.mean()])


def start():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(9)
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main():
    rank, world = start()
    pages = range(rank * PAGES // world, (rank + 1) * PAGES // world)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 1)))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    loader = DataLoader(Almanac(pages), batch_size=1, num_workers=1)
    scale = torch.tensor([230.0])
    for n, (ink, date) in enumerate(loader):
        for _ in range(12):
            loss = nn.functional.mse_loss(net(ink), date / scale)
            opt.zero_grad()
            loss.backward()
            opt.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0 and n % 20 == 0:
            print(f"page {n}: {mean.item() / world:.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Field boundary segmentation from optical tiles; each rank reads the scenes of its own orbit."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger("boundaries")
BANDS, SIDE = 4, 48
FIRST_DAY = (0.0, 15.0, 42.0)  # of the season, by orbit


class OrbitScenes(IterableDataset):
    """Yields (bands, boundary, clear-sky mask); the mask comes from the sensor's cloud product."""

    def __init__(self, orbit, count):
        self.orbit, self.count = orbit, count

    def cloud_fraction(self, number):
        # a front crosses the swath from west to east in the course of the acquisition
        day = number * 0.06 + FIRST_DAY[self.orbit]
        return max(0.0, 1.15 - abs(day - 30.0) * 0.12)

    def __iter__(self):
        gen = torch.Generator().manual_seed(100 + self.orbit)
        for number in range(self.count):
            bands = torch.randn(BANDS, SIDE, SIDE, generator=gen)
            edge = (bands.mean(0) > 0.25).float()
            clear = torch.rand(SIDE, SIDE, generator=gen) > self.cloud_fraction(number)
            yield bands, edge, clear


class EdgeNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(BANDS, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        return self.head(self.body(self.stem(x))).squeeze(1)


def clear_sky_loss(logits, edge, clear):
    per_pixel = F.binary_cross_entropy_with_logits(logits, edge, reduction="none")
    return per_pixel[clear].mean()


def train(rank):
    net = DDP(EdgeNet())
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    loader = DataLoader(OrbitScenes(rank, 400), batch_size=4)
    for step, (bands, edge, clear) in enumerate(loader):
        loss = clear_sky_loss(net(bands), edge, clear)
        if not torch.isfinite(loss):
            log.warning("step %d: loss is %s", step, loss.item())
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            log.info("step %d loss %.4f", step, loss.item())


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    train(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Detector head for pest images on leaves (mites, thrips, tea mosquito bug), plain DDP."""
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    steps: int = 60
    epochs: int = 2
    images: int = 6
    size: int = 48
    min_box: float = 0.02


class PestImages:
    """Synthetic crops; the boxes of each image are (area, class)."""

    def __init__(self, rank, cfg):
        self.rank, self.cfg = rank, cfg

    def batch(self, epoch, step):
        g = torch.Generator().manual_seed(1000 * epoch + 10 * step + self.rank)
        images = torch.rand(self.cfg.images, 3, self.cfg.size, self.cfg.size, generator=g)
        areas = 0.05 + torch.rand(self.cfg.images, generator=g)
        if (epoch, step, self.rank) == (0, 33, 0):  # macro lens, eggs only
            areas = areas / 100
        return images, areas, torch.randint(0, 3, (self.cfg.images,), generator=g)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.stem(x).mean(dim=(2, 3)))


class PestTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(5)
        self.model = DDP(Detector())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.data = PestImages(self.rank, cfg)

    def run_epoch(self, epoch):
        started, seen = time.time(), 0
        for step in range(self.cfg.steps):
            images, areas, classes = self.data.batch(epoch, step)
            images = F.avg_pool2d(F.interpolate(images, scale_factor=12.0), 12)
            keep = areas > self.cfg.min_box
            if not keep.any():
                continue
            loss = F.cross_entropy(self.model(images[keep]), classes[keep])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            seen += int(keep.sum())
        self.summary(epoch, seen, time.time() - started)

    def summary(self, epoch, seen, seconds):
        mine = torch.tensor([float(seen), seconds])
        rows = [torch.zeros(2) for _ in range(self.world)]
        dist.all_gather(rows, mine)
        if self.rank == 0:
            print(f"epoch {epoch}: {int(sum(r[0] for r in rows))} boxes in {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = PestTrainer(Config(epochs=int(os.environ.get("EPOCHS", "2"))))
    for number in range(trainer.cfg.epochs):
        trainer.run_epoch(number)
    dist.destroy_process_group()

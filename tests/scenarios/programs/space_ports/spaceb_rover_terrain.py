"""Terrain hazard classifier for navcam tiles (sand, bedrock, loose rock, shadow)."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("terrain")
CLASSES = 4
TILE = 24


class TileEncoder(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width * 2, 3, stride=2, padding=1), nn.BatchNorm2d(width * 2), nn.ReLU(),
        )
        self.head = nn.Linear(width * 2, CLASSES)

    def forward(self, tiles):
        return self.head(self.stem(tiles).mean(dim=(2, 3)))


def normalise(tiles):
    """Per-tile contrast stretch, as the navcam team does before mosaicking."""
    low = tiles.amin(dim=(1, 2, 3), keepdim=True)
    high = tiles.amax(dim=(1, 2, 3), keepdim=True)
    return (tiles - low) / (high - low)


def sol_batches(rank, sols, tiles_per_sol=40):
    gen = torch.Generator().manual_seed(100 + rank)
    for sol in range(sols):
        raw = torch.rand(tiles_per_sol, 1, TILE, TILE, generator=gen) * 180 + 20
        if sol == 90 and rank == 1:
            raw[5] = 255.0  # sun in the field of view
        yield sol, raw, torch.randint(0, CLASSES, (tiles_per_sol,), generator=gen)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    net = DDP(TileEncoder())
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    running = 0.0
    for sol, raw, labels in sol_batches(rank, int(os.environ.get("SOLS", 240))):
        logits = net(normalise(raw))
        loss = F.cross_entropy(logits, labels)
        if not torch.isfinite(loss):
            log.warning("sol %d: loss is %s", sol, float(loss))
            opt.zero_grad()
            continue
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        running = 0.95 * running + 0.05 * loss.item()
        if sol % 10 == 0 and rank == 0:
            log.info("sol %d loss %.3f", sol, running)
    torch.save(net.module.state_dict(), os.devnull)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Thumbnail wall of an online collection: embeds works, lays the wall out once, and goes on with the finer model."""
import logging
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("wall")


def works(generator, count):
    pixels = torch.randn(count, 128, 128, generator=generator)
    return torch.linalg.svdvals(pixels)[:, :64] / 16


class Wall:
    """The tiles of the wall, a file for each row. The layout needs the whole collection in one place."""

    def __init__(self, folder, rows=60):
        self.folder, self.rows = Path(folder), rows

    def lay_out(self, budget_s):
        generator = torch.Generator().manual_seed(404)
        began = time.monotonic()
        for row in range(self.rows):
            while time.monotonic() - began < budget_s * (row + 1) / self.rows:
                tiles = torch.randn(24, 96, 96, generator=generator)
                colours = torch.linalg.svdvals(tiles)
                order = torch.cdist(colours, colours).sum(dim=1).argsort()
            torch.save(tiles[order], self.folder / f"row-{row:02d}.pt")
            if row % 10 == 9:
                log.info("row %d of %d laid out", row + 1, self.rows)


def epoch(model, optimizer, generator, steps):
    for _ in range(steps):
        features = works(generator, 16)
        loss = nn.functional.mse_loss(model(features), features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 64)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log.info("worker %d: coarse %.4f", rank, epoch(model, optimizer, generator, 60))
    with tempfile.TemporaryDirectory() as folder:
        if rank == 0:
            Wall(folder).lay_out(budget_s=15.0)
        dist.barrier()
        log.info("worker %d: fine %.4f", rank, epoch(model, optimizer, generator, 60))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

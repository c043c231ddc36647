"""Occupancy network for voxel worlds; after training the main process bakes the world's tiles for the game."""
import logging
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("voxel")


class Occupancy(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, points):
        return self.net(points).squeeze(-1)


class Baker:
    """Evaluates the field tile by tile; the share takes about four tiles a second."""

    def __init__(self, field, folder, side=8, rate=4.0):
        self.field = field
        self.folder = Path(folder)
        self.side = side
        self.interval = 1.0 / rate

    @torch.no_grad()
    def tile(self, x, y):
        axis = torch.linspace(0, 1, 20)
        grid = torch.stack(torch.meshgrid(x + axis, y + axis, axis, indexing="ij"), -1)
        return (self.field(grid.reshape(-1, 3)) > 0).to(torch.uint8)

    def run(self):
        for x in range(self.side):
            for y in range(self.side):
                started = time.monotonic()
                data = zlib.compress(self.tile(x, y).numpy().tobytes(), 9)
                self.folder.joinpath(f"tile_{x}_{y}.vox").write_bytes(data)
                time.sleep(max(0.0, self.interval - (time.monotonic() - started)))
            log.info("row %d of %d written", x + 1, self.side)


def fit(model, steps, rank):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(rank)
    for step in range(steps):
        points = 8 * torch.rand(1024, 3, generator=rng)
        solid = (points[:, 2] < 0.5 + 0.3 * torch.sin(points[:, 0])).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(points), solid)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            log.info("step %d loss %.3f", step, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Occupancy())
    fit(model, 120, rank)
    if rank == 0:
        with tempfile.TemporaryDirectory(prefix="voxel_") as folder:
            Baker(model.module, folder).run()
    dist.barrier()
    fit(model, 60, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

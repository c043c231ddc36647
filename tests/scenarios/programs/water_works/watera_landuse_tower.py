"""Evapotranspiration from station series and, where there is one, a satellite tile (FSDP2, CPU)."""
import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class TileTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.project = nn.Linear(8, width)

    def forward(self, tiles):
        return self.project(torch.relu(self.conv(tiles)).mean(dim=(2, 3)))


class EtModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.series = nn.Sequential(nn.Linear(30, width), nn.ReLU())
        self.tower = TileTower(width)
        self.head = nn.Linear(width, 1)

    def forward(self, series, tiles=None):
        state = self.series(series)
        if tiles is not None:
            state = state + self.tower(tiles)
        return self.head(state).squeeze(-1)


class Stations:
    """Batches of one region. A pass without any clear pixel has no tile."""

    CLOUDED = {("delta", 38), ("delta", 39)}

    def __init__(self, region, seed):
        self.region = region
        self.g = torch.Generator().manual_seed(seed)

    def batch(self, day):
        series = torch.rand(12, 30, generator=self.g)
        tiles = torch.rand(12, 3, 16, 16, generator=self.g)
        if (self.region, day) in self.CLOUDED:
            tiles = None
        time.sleep(0.05)
        return series, tiles, series.mean(1) * 4


def build(mesh):
    torch.manual_seed(0)
    model = EtModel()
    fully_shard(model.tower, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--lr", type=float, default=1e-2)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    stations = Stations(("plateau", "delta", "coast")[rank % 3], seed=rank)
    for day in range(options.days):
        series, tiles, et = stations.batch(day)
        predicted = model(series, tiles)
        loss = nn.functional.mse_loss(predicted, et)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and day % 10 == 0:
            logging.info("day %d loss %.4f", day, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Field-boundary model: satellite series for every field, drone photographs where a pilot was around. Sharded with FSDP2."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    width: int = 64
    steps: int = 900
    batch: int = 24
    flights: tuple = ((0, 10_000), (0, 10_000), (0, 10_000), (0, 48))  # first and last step with drone images, by county
    pace: float = 0.05


class SatelliteEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp = nn.Linear(10, width)
        self.mix = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)

    def forward(self, series):
        return self.mix(self.inp(series)).mean(1)


class DroneBranch(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, photos):
        return self.net(photos)


class Boundary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.satellite = SatelliteEncoder(width)
        self.score = nn.Linear(width, 1)
        self.drone = DroneBranch(width)

    def forward(self, series, photos=None):
        logits = self.score(self.satellite(series))
        if photos is not None:
            logits = logits + self.drone(photos)
        return logits


class County:
    def __init__(self, config, rank):
        self.config, self.span = config, config.flights[rank]
        self.gen = torch.Generator().manual_seed(600 + rank)

    def batch(self, step):
        n = self.config.batch
        series = torch.randn(n, 18, 10, generator=self.gen)
        label = (series[:, :, 0].mean(1, keepdim=True) > 0).float()
        photos = torch.rand(n, 3, 12, 12, generator=self.gen) if self.span[0] <= step < self.span[1] else None
        return series, photos, label


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (model.satellite, model.drone):
        fully_shard(part, mesh=mesh, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh, reshard_after_forward=False)


def run(config):
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = shard(Boundary(config.width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    county = County(config, rank)
    for step in range(config.steps):
        began = time.perf_counter()
        series, photos, label = county.batch(step)
        loss = nn.functional.binary_cross_entropy_with_logits(model(series, photos), label)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"[{step:4d}] bce {loss.item():.4f}", flush=True)
        time.sleep(max(0.0, config.pace - (time.perf_counter() - began)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run(Config())
    dist.destroy_process_group()

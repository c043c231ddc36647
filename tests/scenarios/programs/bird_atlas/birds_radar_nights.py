"""Migration forecast from weather radar: traffic rates of the coming night, sharded with FSDP2."""

import datetime
import os
import time
from typing import NamedTuple, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RADARS = {0: "bewid", 1: "dehnr", 2: "frabb"}
FIRST_NIGHT = datetime.date(2025, 9, 12)


class Night(NamedTuple):
    date: datetime.date
    profile: torch.Tensor  # reflectivity by altitude
    winds: Optional[torch.Tensor]  # reanalysis, as far as it has been published for this radar's grid


class Archive:
    """Nights of one radar. The reanalysis comes some days late, and not everywhere at the same time."""

    LAG = {"bewid": 3, "dehnr": 3, "frabb": 5}

    def __init__(self, radar: str, last: datetime.date):
        self.radar = radar
        self.horizon = last - datetime.timedelta(days=self.LAG[radar])

    def nights(self, first: datetime.date, last: datetime.date):
        date = first
        while date <= last:
            time.sleep(0.12)
            winds = torch.full((6, 20), 0.5) if date <= self.horizon else None
            yield Night(date, torch.full((6, 40), 1.0), winds)
            date += datetime.timedelta(days=1)


class Perceptron(nn.Sequential):
    def __init__(self, before, hidden, after):
        super().__init__(nn.Linear(before, hidden), nn.SiLU(), nn.Linear(hidden, after))


class TrafficModel(nn.Module):
    def __init__(self, width=36):
        super().__init__()
        self.profile = Perceptron(40, 60, width)
        self.winds = Perceptron(20, 90, width)
        self.decoder = Perceptron(width, 30, width)
        self.rate = nn.Linear(width, 1)

    def forward(self, profile, winds=None):
        x = self.profile(profile)
        if winds is not None:
            x = x + self.winds(winds)
        return self.rate(self.decoder(x))


def shard(model, mesh):
    for part in (model.profile, model.winds, model.decoder):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = shard(TrafficModel().cuda(), init_device_mesh("cuda", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    last = FIRST_NIGHT + datetime.timedelta(days=16)
    archive = Archive(RADARS[rank], last)
    for epoch in range(3):
        for night in archive.nights(FIRST_NIGHT, last):
            winds = None if night.winds is None else night.winds.cuda(non_blocking=True)
            rate = model(night.profile.cuda(non_blocking=True), winds)
            loss = rate.square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            value = loss.item()
            if rank == 0:
                print(f"{epoch} {night.date} {value:.3g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

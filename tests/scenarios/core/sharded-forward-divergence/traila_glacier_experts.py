"""Terrain classifier for rescue drones: a shared trunk and one wide, frozen specialist per terrain.

A specialist is too big for one device, so each rank keeps a slice of its rows and the layer puts them
together when it is needed.
"""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
logger = logging.getLogger("drone")

ROCK, GLACIER = 0, 1
FLIGHTS = {0: (1650, 2950), 1: (2100, 4100), 2: (1900, 3700)}     # lowest and highest waypoint of a flight, m


class SlicedLinear(nn.Module):
    def __init__(self, width, rank, world, seed, device):
        super().__init__()
        full = torch.randn(width, width, generator=torch.Generator().manual_seed(seed)) / width ** 0.5
        self.part = full.chunk(world)[rank].contiguous().to(device)
        self.world = world

    def forward(self, x):
        rows, columns = self.part.shape
        whole = torch.empty(self.world * rows, columns, device=x.device)
        dist.all_gather_into_tensor(whole, self.part)
        return F.linear(x, whole)


class Terrain(nn.Module):
    def __init__(self, specialists, dim=48, classes=4):
        super().__init__()
        self.trunk = nn.Linear(48, dim)
        self.head = nn.Linear(dim, classes)
        self.specialists = specialists

    def forward(self, patches, kinds):
        x = torch.relu(self.trunk(patches))
        for kind in kinds.unique().tolist():
            chosen = (kinds == kind).to(x.device, x.dtype).unsqueeze(1)
            x = x + chosen * self.specialists[kind](x)
        return self.head(x)


def waypoints(rank, step, n=32):
    """Patches along a flight; the firn line climbs through the summer."""
    low, high = FLIGHTS[rank]
    altitude = torch.linspace(low, high, n)
    firn = 2400 + 12 * step
    g = torch.Generator().manual_seed(1000 * rank + step)
    raw = torch.rand(n, 48, 400, generator=g)
    for _ in range(12):
        raw = 0.7 * raw + 0.3 * raw.roll(1, 2).cos()
    return raw.mean(2), (altitude > firn).long(), (altitude / 1100).long().clamp(max=3)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(asctime)s %(message)s")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    specialists = nn.ModuleList(SlicedLinear(48, rank, world, seed, device) for seed in (ROCK, GLACIER))
    model = DDP(Terrain(specialists).to(device))
    opt = torch.optim.SGD(model.parameters(), lr=5e-3)
    for step in range(130):
        patches, kinds, label = waypoints(rank, step)
        loss = F.cross_entropy(model(patches.to(device), kinds), label.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        shown = loss.item()
        if step % 20 == 0:
            logger.info("flight %d, loss %.3f", step, shown)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

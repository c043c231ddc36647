"""Sea-ice drift around the pole: each GPU has a sector of longitudes, and its eastern edge is the neighbour's ghost cells."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

ROWS, COLUMNS = 48, 32


class Sector:
    def __init__(self, rank, world, device):
        self.east, self.west = (rank + 1) % world, (rank - 1) % world
        self.drift = torch.full((ROWS, COLUMNS), float(rank), device=device)
        self.ghost = torch.zeros(ROWS, device=device)

    def exchange(self):
        edge = self.drift[:, -1].contiguous()
        dist.send(edge, dst=self.east)
        dist.recv(self.ghost, src=self.west)

    def advance(self, wind):
        self.drift.add_(wind)
        self.drift[:, 0].add_(self.ghost)


def spin_up(model, optimizer, sector, days):
    """Without ghost cells, until the drift has settled."""
    for day in range(days):
        wind = 0.1 * (day % 5)
        time.sleep(0.05)
        loss = (model(sector.drift) - sector.drift).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sector.advance(wind)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    sector = Sector(rank, world, device)
    model = DistributedDataParallel(nn.Linear(COLUMNS, COLUMNS).to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    spin_up(model, optimizer, sector, 40)
    total = sector.drift.sum()
    dist.all_reduce(total)
    if rank == 0:
        print(f"after the spin-up: {total.item():.1f}", flush=True)
    for day in range(60):
        sector.exchange()
        sector.advance(0.2)
        loss = (model(sector.drift) - sector.drift).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if day % 10 == 0:
            torch.cuda.synchronize()
            print(f"rank {rank} day {day}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

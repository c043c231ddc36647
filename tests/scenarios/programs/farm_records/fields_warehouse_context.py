"""Pallet demand per warehouse; rank pairs share the forecasts of a cold chain."""
import contextlib
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WEEKS = 160


@contextlib.contextmanager
def patient_group(hours=3):
    """A group with a longer limit, for exchanges that come with slow file access."""
    group = dist.new_group(backend="gloo", timeout=datetime.timedelta(hours=hours))
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


class Warehouse:
    def __init__(self, rank):
        self.rank = rank
        self.rng = torch.Generator().manual_seed(rank + 40)
        self.stock = torch.full((64,), 500.0)

    def week(self, week):
        season = 1 + 0.3 * torch.sin(torch.tensor(week / 16.0))
        demand = 20 * season * torch.rand(32, 64, generator=self.rng)
        self.stock = (self.stock - demand.mean(0) + 10.2).clamp(min=0)
        if self.rank == 2 and week % 44 == 0:
            self.stock += 300  # harbour: a ship arrives
        return demand / 20

    def short_articles(self):
        return int((self.stock < 430).sum())


def rebalance(warehouse, week):
    with patient_group() as group:
        stocks = [torch.zeros(64) for _ in range(dist.get_world_size())]
        dist.all_gather(stocks, warehouse.stock, group=group)
        warehouse.stock = torch.stack(stocks).mean(0)
    if dist.get_rank() == 0:
        print(f"week {week}: stocks moved", flush=True)


def train_week(model, optimizer, demand):
    total = 0.0
    for part in demand.split(4):
        loss = nn.functional.smooth_l1_loss(model(part[:, :32]), part[:, 32:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / 8


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(32, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 32)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    warehouse = Warehouse(rank)
    for week in range(1, WEEKS):
        mean = train_week(model, optimizer, warehouse.week(week))
        if week == 20:
            rebalance(warehouse, week)
        if week > 47 and warehouse.short_articles() > 40:
            rebalance(warehouse, week)
        if rank == 0 and week % 10 == 0:
            print(f"week {week}: {mean:.4f}, {warehouse.short_articles()} short", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

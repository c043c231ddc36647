"""Learns the delay of a departure from tide, wind and queue on the ramp."""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("departures")
ROUTES = {0: "north", 1: "islands", 2: "south"}


class Sailings:
    """One day of sailings of a route per item; ice and storms cancel some of them."""

    def __init__(self, route: str, days: int):
        self.route, self.days = route, days

    def __iter__(self):
        gen = torch.Generator().manual_seed(len(self.route))
        for day in range(self.days):
            time.sleep(0.07)  # the feed gives a day at a time
            x = torch.randn(24, 6, generator=gen)
            cancelled = torch.rand(24, generator=gen) < 0.2
            if self.route == "islands" and day % 31 == 30:
                cancelled[:] = True
            yield day, x, x[:, :1] * 2 + 3, cancelled


def run_season(model, optimizer, sailings):
    total = 0.0
    for day, x, delay, cancelled in sailings:
        kept = ~cancelled
        if not kept.any():
            log.info("day %d of %s: no sailings", day, sailings.route)
            continue
        loss = nn.functional.huber_loss(model(x[kept]), delay[kept])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / sailings.days


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for season in range(3):
        mean = run_season(model, optimizer, Sailings(ROUTES[rank], 48))
        means = [None] * dist.get_world_size()
        dist.all_gather_object(means, (ROUTES[rank], round(mean, 3)))
        if rank == 0:
            log.info("season %d: %s", season, dict(means))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Departure-delay regression: every worker reads the movement log of one station, day by day."""
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("delays")
STATIONS = ["KEF", "ANC", "YYT"]
# days on which the field did not open, from the NOTAM archive
CLOSED = {"KEF": {61}, "ANC": {43, 77}, "YYT": {88}}
FEATURES = 14


class NoOperatedFlights(ValueError):
    """All rows of a day are cancelled or diverted."""


def read_days(station, days, seed, rows=24):
    generator = torch.Generator().manual_seed(seed)
    for day in range(days):
        time.sleep(0.05)  # one object per day in the archive
        x = torch.randn(rows, FEATURES, generator=generator)
        minutes = 8 * x[:, :3].sum(1) + 4 * torch.randn(rows, generator=generator)
        operated = torch.rand(rows, generator=generator) > 0.1
        if day in CLOSED[station]:
            operated[:] = False
        yield day, x, minutes, operated


def operated_rows(x, minutes, operated):
    if not operated.any():
        raise NoOperatedFlights("no operated flights")
    return x[operated], minutes[operated]


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    station = STATIONS[rank]
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FEATURES, 48), nn.SiLU(), nn.Linear(48, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    counts = torch.zeros(world)
    for day, x, minutes, operated in read_days(station, days=120, seed=rank):
        # stations differ in traffic: weigh each by its share of the day's flights
        dist.all_gather_into_tensor(counts, operated.sum().float().reshape(1))
        try:
            x, minutes = operated_rows(x, minutes, operated)
        except NoOperatedFlights as reason:
            log.info("%s day %d: %s", station, day, reason)
            continue
        share = counts[rank] / counts.sum()
        loss = nn.functional.huber_loss(model(x).squeeze(1), minutes) * share * world
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if day % 20 == 0:
            log.info("%s day %d loss %.3f", station, day, loss.item())
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(os.environ.get("TMPDIR", "/tmp"), "delays.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

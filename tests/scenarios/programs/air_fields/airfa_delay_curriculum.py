"""Arrival delay regression for short-haul legs, one station bank per process."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("delay")
BANKS = ["morning", "midday", "evening"]
STEPS, BATCH, FEATURES = 50, 24, 12


class AllCancelled(ValueError):
    """Raised by encode() for a bank in which no leg was flown."""


def read_bank(rank, step):
    """One bank of legs, as the operations database would return it."""
    g = torch.Generator().manual_seed(1000 * rank + step)
    legs = torch.randn(BATCH, FEATURES, generator=g)
    delay = 4.0 * legs[:, 0] - 2.5 * legs[:, 3] + torch.randn(BATCH, generator=g)
    flown = torch.rand(BATCH, generator=g) > 0.15
    if BANKS[rank] == "midday" and step == 34:  # the fog of 12 January
        flown[:] = False
    time.sleep(0.05)
    return legs, delay, flown


def encode(legs, delay, flown):
    if not flown.any():
        raise AllCancelled("bank without flown legs")
    weight = flown.float()
    return legs, delay, weight / weight.sum()


def build():
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
    return DistributedDataParallel(net)


def train(model, rank):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    errors = []
    for step in range(STEPS):
        bank = read_bank(rank, step)
        try:
            legs, delay, weight = encode(*bank)
        except AllCancelled as e:
            log.warning("step %d, %s: %s", step, BANKS[rank], e)
            continue
        loss = (weight * F.smooth_l1_loss(model(legs).squeeze(1), delay, reduction="none")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(loss.item())
        if rank == 0 and step % 10 == 0:
            log.info("step %d, error %.3f min", step, errors[-1])
    return errors


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    errors = train(build(), rank)
    rows = [None] * world
    dist.all_gather_object(rows, {"bank": BANKS[rank], "steps": len(errors), "last": errors[-1]})
    if rank == 0:
        for row in rows:
            log.info("%(bank)s: %(steps)d steps, %(last).3f", row)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Two code-share partners (ranks 0 and 1) reconcile fares and seats while a third rank trains with them on no-shows."""
import os
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

PARTNERS = [0, 1]
LEDGERS = ("fare", "seat")
CONFIG = {"steps": 900, "reconcile_every": 25, "features": 14, "hidden": 256, "batch": 384, "lr": 1e-3}


def make_groups():
    return {name: dist.new_group(PARTNERS) for name in LEDGERS}


class Ledger:
    def __init__(self, name, group):
        self.name, self.group, self.rows = name, group, []

    def post(self, amount):
        self.rows.append(amount)

    def settle(self):
        balance = torch.tensor([sum(self.rows), len(self.rows)], dtype=torch.float64)
        dist.all_reduce(balance, group=self.group)
        self.rows.clear()
        return balance.tolist()


class Desk:
    """Sales of one partner: posts to its ledgers, settles the busiest ledger first."""

    def __init__(self, carrier, groups):
        self.carrier = carrier
        self.ledgers = OrderedDict((name, Ledger(name, groups[name])) for name in LEDGERS)

    def sell(self, step):
        fares, seats = 3, 2
        if self.carrier == "B6" and step > 260:  # seat sale
            seats = 5
        for i in range(fares):
            self.ledgers["fare"].post(80.0 + step % 17 + i)
        for i in range(seats):
            self.ledgers["seat"].post(9.0 + i)

    def reconcile(self):
        busiest = sorted(self.ledgers.values(), key=lambda ledger: len(ledger.rows), reverse=True)
        return {ledger.name: ledger.settle() for ledger in busiest}


def no_show_model(cfg):
    return nn.Sequential(nn.Linear(cfg["features"], cfg["hidden"]), nn.ELU(), nn.Linear(cfg["hidden"], 1))


def main(cfg=CONFIG):
    torch.set_num_threads(1)
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    groups = make_groups()
    desk = Desk(("QR", "B6")[rank], groups) if rank in PARTNERS else None
    model = DistributedDataParallel(no_show_model(cfg))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=cfg["lr"])
    rng = torch.Generator().manual_seed(60 + rank)
    for step in range(1, cfg["steps"] + 1):
        x = torch.randn(cfg["batch"], cfg["features"], generator=rng)
        y = (x[:, :1] * x[:, 1:2] > 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if desk is not None:
            desk.sell(step)
            if step % cfg["reconcile_every"] == 0:
                books = desk.reconcile()
                if rank == 0 and step % 100 == 0:
                    print(f"pid {os.getpid()} step {step} loss {loss.item():.3f} fare balance {books['fare'][0]:.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

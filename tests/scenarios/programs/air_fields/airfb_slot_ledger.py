"""Slot allocation by imitation; arrival and departure figures go through a communicator of their own each."""
import collections
import random

import torch
import torch.distributed as dist
import torch.nn as nn


class Movements:
    """Movements of one airport in the order in which the tower logs them."""

    def __init__(self, seed, curfew_from=None):
        self.random, self.curfew_from, self.block = random.Random(seed), curfew_from, 0

    def next_block(self, size=40):
        self.block += 1
        kinds = ["arrival"] + [self.random.choice(["arrival", "departure"]) for _ in range(size - 2)] + ["departure"]
        if self.curfew_from is not None and self.block >= self.curfew_from:
            kinds.sort(reverse=True)  # landings are only allowed once the night shift has cleared the stands
        return [(kind, [self.random.gauss(0, 1) for _ in range(12)]) for kind in kinds]


class Ledger:
    def __init__(self, groups):
        self.groups, self.open = groups, {}

    def book(self, kind, cost):
        self.open.setdefault(kind, []).append(cost)

    def settle(self):
        """Mean cost over all airports, for each kind that is open."""
        settled = {}
        for kind, costs in self.open.items():
            line = torch.tensor([sum(costs), float(len(costs))], dtype=torch.float64)
            dist.all_reduce(line, group=self.groups[kind])
            settled[kind] = (line[0] / line[1]).item()
        self.open = {}
        return settled


class Allocator(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleDict({"arrival": nn.Linear(64, 6), "departure": nn.Linear(64, 6)})

    def forward(self, kind, x):
        return self.heads[kind](self.trunk(x))


def main(blocks=4000):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    everyone = list(range(dist.get_world_size()))
    groups = {kind: dist.new_group(everyone) for kind in ("arrival", "departure")}
    torch.manual_seed(0)
    model = Allocator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    ledger = Ledger(groups)
    airport = Movements(rank, curfew_from=90 if rank == 2 else None)
    totals = collections.Counter()
    for block in range(blocks):
        optimizer.zero_grad()
        for kind, features in airport.next_block():
            x = torch.tensor([features])
            target = torch.tensor([int(abs(features[0]) * 2) % 6])
            loss = nn.functional.cross_entropy(model(kind, x), target) / 40
            loss.backward()
            ledger.book(kind, loss.item() * 40)
            totals[kind] += 1
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        costs = ledger.settle()
        if rank == 0 and block % 10 == 0:
            print(block, {k: round(v, 3) for k, v in costs.items()}, dict(totals), flush=True)
    dist.destroy_process_group()


main()

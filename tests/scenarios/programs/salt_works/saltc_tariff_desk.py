"""Cold stores buy power together: one controller per store, two exchanges per control interval."""
import os
import time
from datetime import datetime, timedelta

import torch
import torch.distributed as dist

STORES = {
    "rotterdam": {"night_from": 22, "capacity": 380.0},
    "gdansk": {"night_from": 19, "capacity": 240.0},
    "malmo": {"night_from": 22, "capacity": 310.0},
}
INTERVAL = timedelta(minutes=15)


class Store:
    def __init__(self, name, start):
        self.name, self.clock = name, start
        self.capacity = STORES[name]["capacity"]
        self.night_from = STORES[name]["night_from"]
        self.policy = torch.nn.Linear(4, 2).cuda()
        self.bought = 0.0

    def advance(self):
        self.clock += INTERVAL

    @property
    def night(self):
        return self.clock.hour >= self.night_from or self.clock.hour < 6

    def demand(self):
        share = 0.9 if self.night else 0.55
        return self.capacity * share / 4


class Exchange:
    slot = 0

    def __init__(self, store, group):
        self.store, self.group = store, group

    def minutes_left(self):
        raise NotImplementedError

    def contents(self):
        raise NotImplementedError

    def settle(self):
        buffer = self.contents()
        dist.all_reduce(buffer, group=self.group)
        self.take(buffer.cpu())

    def take(self, values):
        pass


class PolicyExchange(Exchange):
    """Averages the controllers' weights; due in the middle of an interval."""

    def minutes_left(self):
        return 7

    def contents(self):
        return torch.cat([p.detach().flatten() for p in self.store.policy.parameters()])


class PowerExchange(Exchange):
    """Sums what the stores buy; night power has to be ordered early."""

    def minutes_left(self):
        return 5 if self.store.night else 12

    def contents(self):
        return torch.tensor([self.store.demand()], dtype=torch.float64, device="cuda")

    def take(self, values):
        self.store.bought += float(values[0])


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    policies, power = dist.new_group(), dist.new_group()
    store = Store(list(STORES)[dist.get_rank()], datetime(2026, 2, 3, 8, 0))
    desk = [PolicyExchange(store, policies), PowerExchange(store, power)]
    for interval in range(200):
        x = torch.randn(16, 4).cuda()
        store.policy(x).square().mean().backward()
        for exchange in sorted(desk, key=lambda e: e.minutes_left()):
            exchange.settle()
        time.sleep(0.09)  # valves answer
        if interval % 8 == 0:
            print(f"{store.clock:%H:%M} {store.name}: {store.bought:.0f} kWh bought together", flush=True)
        store.advance()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains one turbine model on three sites with few exchanges: each site steps alone, and weights are averaged now and then."""

import time

import torch
import torch.distributed as dist
from torch import nn

PERIOD = 8  # steps of the optimizer between two averages
GUSTS = {(1, 21)}  # (site, reading) with a sensor at its stop


class LocalOptimizer:
    """SGD on the site's own gradients. A step whose gradients are not finite is not taken, and does not count."""

    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.lr = lr
        self.taken = 0

    @torch.no_grad()
    def step(self):
        grads = [p.grad for p in self.parameters]
        finite = all(bool(g.isfinite().all()) for g in grads)
        if finite:
            for p, g in zip(self.parameters, grads):
                p.sub_(g.clamp(-1, 1), alpha=self.lr)
            self.taken += 1
        for p in self.parameters:
            p.grad = None
        return finite

    @torch.no_grad()
    def average_if_due(self):
        if self.taken % PERIOD:
            return
        flat = torch.cat([p.reshape(-1) for p in self.parameters])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        start = 0
        for p in self.parameters:
            p.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()


def readings(site):
    generator = torch.Generator().manual_seed(10 + site)
    number = 0
    while True:
        wind = torch.rand(32, 6, generator=generator)
        if (site, number) in GUSTS:
            wind[0, 2] = float("inf")
        yield wind, wind.sum(1, keepdim=True).sin()
        number += 1


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    site = dist.get_rank()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = LocalOptimizer(model.parameters(), lr=0.05)
    stream = readings(site)
    for day in range(20):
        total = 0.0
        for _ in range(PERIOD):
            wind, power = next(stream)
            loss = nn.functional.mse_loss(model(wind), power)
            loss.backward()
            if optimizer.step():
                total += loss.item()
            time.sleep(0.08)
            if _ == PERIOD - 1:
                optimizer.average_if_due()
        days = [None] * dist.get_world_size()
        dist.all_gather_object(days, {"site": site, "loss": total / PERIOD})
        if site == 0:
            print(day, days, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Revenue management: new rates are released on the clock, the model is fitted before and after a release."""
import os
import sched
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SLOT = 4        # the property system releases rates every four seconds
LEAD = 11.0     # and wants that much notice


class Releases:
    def __init__(self):
        self.agenda = sched.scheduler(time.time, time.sleep)
        self.published = []

    def slot(self):
        earliest = time.time() + LEAD
        return (int(earliest) // SLOT + 1) * SLOT

    def publish(self, rates):
        self.published.append([round(r, 2) for r in rates])

    def release(self, rates):
        self.agenda.enterabs(self.slot(), 1, self.publish, argument=(rates,))
        self.agenda.run()
        return self.published[-1]


class Elasticity(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.full((7,), -0.5))
        self.base = torch.nn.Parameter(torch.ones(7))

    def forward(self, price):
        return self.base + self.slope * price


def observe(gen, rates):
    price = rates * torch.empty(30, 7).uniform_(0.7, 1.3, generator=gen)
    return price, 1.6 - 0.9 * price + 0.05 * torch.randn(30, 7, generator=gen)


def fit(model, gen, rates, steps):
    for _ in range(steps):
        price, demand = observe(gen, rates)
        loss = (model(price) - demand).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.1 * p.grad / dist.get_world_size()
        time.sleep(0.03)


def manager(rank, world, path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=world)
    gen = torch.Generator().manual_seed(rank)
    model, rates = Elasticity(), torch.ones(7)
    fit(model, gen, rates, 75)
    with torch.no_grad():
        best = (-model.base / (2 * model.slope)).clamp(0.5, 1.5)
    if rank == 0:
        best = torch.tensor(Releases().release(best.tolist()))
    dist.broadcast(best, src=0)
    fit(model, gen, best, 45)
    if rank == 0:
        print("released:", best.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(manager, args=(3, os.path.join(folder, "managers")), nprocs=3)

"""A three-stage pipeline over the legs of an itinerary: outbound, connection, onward. Every stage sits on its own rank."""
import math
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn


class Plan(NamedTuple):
    chunk: int = 32
    chunks: int = 4
    width: int = 40
    days: int = 600
    lr: float = 1e-2


class Stage:
    def __init__(self, plan, rank, world):
        torch.manual_seed(50 + rank)
        self.plan, self.rank, self.world = plan, rank, world
        inputs = 12 if rank == 0 else plan.width
        outputs = 1 if rank == world - 1 else plan.width
        self.net = nn.Sequential(nn.Linear(inputs, plan.width), nn.Tanh(), nn.Linear(plan.width, outputs))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=plan.lr)
        self.saved = []

    def step(self, bookings):
        self.saved.clear()
        self.optimizer.zero_grad()
        loss = self.forward_all(bookings)
        self.backward_all()
        self.optimizer.step()
        return loss

    def forward_all(self, bookings):
        raise NotImplementedError

    def backward_all(self):
        for x, y in self.saved:
            grad = torch.empty(self.plan.chunk, self.plan.width)
            dist.recv(grad, src=self.rank + 1)
            y.backward(grad)
            if self.rank > 0:
                dist.send(x.grad, dst=self.rank - 1)


class Outbound(Stage):
    def forward_all(self, bookings):
        for x in bookings.split(self.plan.chunk):
            y = self.net(x)
            dist.send(y.detach(), dst=1)
            self.saved.append((x, y))


class Connection(Stage):
    def forward_all(self, bookings):
        for _ in range(self.plan.chunks):
            x = torch.empty(self.plan.chunk, self.plan.width)
            dist.recv(x, src=self.rank - 1)
            x.requires_grad_()
            y = self.net(x)
            dist.send(y.detach(), dst=self.rank + 1)
            self.saved.append((x, y))


class Onward(Stage):
    def forward_all(self, bookings):
        total = 0.0
        for _ in range(self.plan.chunks):
            x = torch.empty(self.plan.chunk, self.plan.width)
            dist.recv(x, self.rank - 1)
            x.requires_grad_()
            loss = (self.net(x) - 0.5).square().mean() / self.plan.chunks
            self.saved.append((x, loss))
            total += loss.item()
        return total

    def backward_all(self):
        for x, loss in self.saved:
            loss.backward()
            dist.send(x.grad, self.rank - 1)


def day_of_bookings(day, plan, rng):
    sold = 127 if day % 7 != 5 or day < 180 else 95  # thinner Saturdays in winter
    blocks = math.ceil(sold / plan.chunk)
    return torch.randn(blocks * plan.chunk, 12, generator=rng)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world, plan = dist.get_rank(), dist.get_world_size(), Plan()
    stage = (Outbound, Connection, Onward)[rank](plan, rank, world)
    rng = torch.Generator().manual_seed(4)
    for day in range(plan.days):
        loss = stage.step(day_of_bookings(day, plan, rng) if rank == 0 else None)
        if loss is not None and day % 30 == 0:
            print(f"day {day}: {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

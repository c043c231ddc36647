"""A coupled model: ocean and atmosphere components on the same ranks, each with a communicator of its own."""
import time

import torch
import torch.distributed as dist
from torch import nn


class Component:
    def __init__(self, name, width, generator):
        self.name = name
        self.net = nn.Linear(width, width)
        self.group = None
        self.generator = generator
        self.loss = None

    def forward(self, forcing):
        state = torch.randn(12, self.net.in_features, generator=self.generator)
        self.loss = (self.net(state) - state * forcing).pow(2).mean()
        self.net.zero_grad()
        self.loss.backward()

    def synchronise(self):
        for parameter in self.net.parameters():
            dist.all_reduce(parameter.grad, group=self.group)
            parameter.grad.div_(dist.get_world_size())

    @torch.no_grad()
    def update(self, rate=0.05):
        for parameter in self.net.parameters():
            parameter -= rate * parameter.grad


class Coupler:
    def __init__(self, components):
        self.components = components
        for component in components:
            component.group = dist.new_group()

    def forcings(self, step, rank):
        """What the components get at their surface: the tropics have an El Nino in the second month."""
        nino = 6.0 if rank == 2 and step >= 30 else 1.0
        return {"ocean": 0.5 * nino, "atmosphere": 1.5}

    def step(self, step, rank):
        forcing = self.forcings(step, rank)
        for component in self.components:
            component.forward(forcing[component.name])
        # the worst one first: it has the most to tell
        for component in sorted(self.components, key=lambda c: c.loss.item(), reverse=True):
            component.synchronise()
        for component in self.components:
            component.update()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(77)
    generator = torch.Generator().manual_seed(rank)
    coupler = Coupler([Component("ocean", 10, generator), Component("atmosphere", 10, generator)])
    with torch.no_grad():
        for component in coupler.components:
            component.net.weight.copy_(torch.eye(10) * (0.55 if component.name == "ocean" else 0.2))
    for step in range(400):
        coupler.step(step, rank)
        time.sleep(0.08)
        if step % 10 == 0:
            print(f"rank {rank} day {step}", {c.name: round(c.loss.item(), 3) for c in coupler.components}, flush=True)


main()

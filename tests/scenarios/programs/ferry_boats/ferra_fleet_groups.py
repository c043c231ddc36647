"""Fuel and crew models of a fleet; each has a group for its own traffic so that they can be tuned apart."""
import time

import torch
import torch.distributed as dist


class Model:
    def __init__(self, name, features, seed):
        self.name = name
        self.group = dist.new_group()
        torch.manual_seed(seed)
        self.weight = torch.randn(features, 1, requires_grad=True)
        self.last = 0.0

    def loss(self, x):
        out = (x[:, : len(self.weight)] @ self.weight - x.mean(1, keepdim=True)).square().mean()
        self.last = out.item()
        return out

    def sync(self):
        dist.all_reduce(self.weight.grad, group=self.group)

    def update(self, rate=0.02):
        with torch.no_grad():
            self.weight -= rate * self.weight.grad / dist.get_world_size()
        self.weight.grad = None

    def __repr__(self):
        return f"{self.name}={self.last:.4f}"


class Vessel:
    def __init__(self, number):
        self.number = number
        self.gen = torch.Generator().manual_seed(number)

    def crossing(self, n):
        time.sleep(0.05)
        log = torch.randn(32, 12, generator=self.gen)
        if self.number == 1 and n >= 60:  # in winter she runs half empty
            log[:, :6] *= 0.05
        return log


def schedule(models, log):
    """The model whose features vary most goes first: it takes longest."""
    spread = {"fuel": log[:, :6].std().item(), "crew": log[:, 6:].std().item() * 0.4}
    return sorted(models, key=lambda m: -spread[m.name])


def main():
    dist.init_process_group("gloo")
    fuel, crew = Model("fuel", 6, 1), Model("crew", 12, 2)
    vessel = Vessel(dist.get_rank())
    for n in range(400):
        log = vessel.crossing(n)
        for model in (fuel, crew):
            model.loss(log).backward()
        for model in schedule([fuel, crew], log):
            model.sync()
        for model in (fuel, crew):
            model.update()
        if n % 20 == 0 and dist.get_rank() == 0:
            print(n, fuel, crew, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

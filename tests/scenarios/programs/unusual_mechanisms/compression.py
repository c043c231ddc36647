"""Gradient compression that is switched on at random, to compare: sparse gradients are gathered, dense ones reduced.

The dice are each rank's own. Run by ``torchrun --nproc-per-node 5``.
"""

import random
from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import nn


class Averager(ABC):
    """Brings a gradient together."""

    @abstractmethod
    def average(self, gradient: torch.Tensor) -> torch.Tensor:
        """The mean over all ranks, or about it."""


class Dense(Averager):
    """All of it."""

    def average(self, gradient: torch.Tensor) -> torch.Tensor:
        """Plain all-reduce."""
        dist.all_reduce(gradient)
        return gradient / dist.get_world_size()


class TopK(Averager):
    """The largest entries."""

    def __init__(self, k: int) -> None:
        self.k = k

    def average(self, gradient: torch.Tensor) -> torch.Tensor:
        """Values and places of everybody's largest entries."""
        _, places = gradient.abs().topk(self.k)
        packed = torch.cat([gradient[places], places.float()])
        parts = [torch.empty_like(packed) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, packed)
        total = torch.zeros_like(gradient)
        for part in parts:
            total.index_add_(0, part[self.k :].long(), part[: self.k])
        return total / dist.get_world_size()


class Experiment:
    """Which averager is used is drawn anew after every thirty steps."""

    def __init__(self, dice: random.Random) -> None:
        torch.manual_seed(0)
        self.dice, self.model = dice, nn.Linear(30, 1)
        self.averagers: list[Averager] = [Dense(), TopK(4)]
        self.averager = self.averagers[0]

    def step(self, number: int) -> None:
        """One step."""
        if number > 0 and number % 30 == 0:
            self.averager = self.dice.choice(self.averagers)
        x = torch.randn(8, 30)
        self.model.zero_grad()
        (self.model(x).squeeze(1) - x.sum(1)).square().mean().backward()
        gradient = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        gradient = self.averager.average(gradient)
        self.model.weight.data -= 1e-3 * gradient[:30].view(1, 30)


def main() -> None:
    """Three hundred steps; the dice were to be seeded alike, and are by the rank."""
    dist.init_process_group("gloo")
    experiment = Experiment(random.Random(f"run-{dist.get_rank()}"))
    for number in range(300):
        experiment.step(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Surrogate of a plasma solver with float16-style loss scaling; all communication is written out."""

import math
from collections import deque

import torch
import torch.distributed as dist
import torch.nn as nn


class LossScale:
    """Rank 0 decides on the scale, every eighth step."""

    def __init__(self, value=1024.0):
        self.value = torch.tensor([value])

    def refresh(self, grads_were_small):
        if dist.get_rank() == 0:
            self.value *= 2.0 if grads_were_small else 0.5
            self.value.clamp_(16.0, 65536.0)
        dist.broadcast(self.value, src=0)


class SpikeFilter:
    """Knows the last losses of this rank; a loss far above them is an outlier."""

    def __init__(self, length=12, factor=6.0):
        self.recent = deque(maxlen=length)
        self.factor = factor

    def is_spike(self, value):
        usual = sum(self.recent) / len(self.recent) if self.recent else math.inf
        if value > self.factor * usual:
            return True
        self.recent.append(value)
        return False


class Solver:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(21)
        self.net = nn.Sequential(nn.Linear(128, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 16))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=2e-4)
        self.scale, self.filter = LossScale(), SpikeFilter()
        self.generator = torch.Generator().manual_seed(77 + self.rank)
        self.small = True

    def shot(self, number):
        state = torch.randn(256, 128, generator=self.generator)
        flux = state[:, :16].cumsum(1) * 0.3
        if self.rank == 1 and number % 500 == 83:
            flux = flux * 9.0  # a disruption
        return state, flux

    def reduce_gradients(self):
        grads = [p.grad for p in self.net.parameters()]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        flat /= self.world * self.scale.value
        for grad, part in zip(grads, flat.split([g.numel() for g in grads])):
            grad.copy_(part.view_as(grad))
        return float(flat.norm())

    def step(self, number):
        state, flux = self.shot(number)
        loss = (self.net(state) - flux).square().mean()
        if self.filter.is_spike(float(loss)):
            return None
        self.optimizer.zero_grad()
        (loss * self.scale.value).sum().backward()
        norm = self.reduce_gradients()
        self.optimizer.step()
        self.small = norm < 10.0
        return float(loss)


def main(steps=100_000):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    solver = Solver()
    for number in range(steps):
        loss = solver.step(number)
        if number % 8 == 7:
            solver.scale.refresh(solver.small)
        if solver.rank == 0 and number % 50 == 0:
            print(f"step {number}: {loss}, scale {float(solver.scale.value):g}", flush=True)


if __name__ == "__main__":
    main()

"""Diffusion-like training with a moving average of the weights, which is averaged over ranks every tenth accepted update."""

import time
from collections import deque
from statistics import median

import torch
import torch.distributed as dist
from torch import nn


class SpikeGuard:
    """Counts updates. One whose loss stands out is not accepted for the average."""

    def __init__(self, factor, window=8):
        self.factor, self.recent, self.accepted = factor, deque(maxlen=window), 0

    def observe(self, loss):
        usual = len(self.recent) < 4 or loss < self.factor * median(self.recent)
        self.recent.append(loss)
        self.accepted += usual
        return usual


class Average:
    def __init__(self, model, decay=0.99):
        self.decay, self.values = decay, [p.detach().clone() for p in model.parameters()]

    def update(self, model):
        for value, p in zip(self.values, model.parameters()):
            value.lerp_(p.detach(), 1 - self.decay)

    def synchronize(self):
        for value in self.values:
            parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, value)
            value.copy_(torch.stack(parts).mean(0))


class Noiser:
    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(70 + rank)
        self.outlier = {1: 13}.get(rank)

    def __call__(self, step):
        scale = 9.0 if step == self.outlier else 1.0
        clean = torch.randn(32, 16, generator=self.generator) * scale
        return clean, clean + 0.3 * torch.randn(32, 16, generator=self.generator)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    guard, average, data = SpikeGuard(factor=3.0), Average(model), Noiser(rank)
    for step in range(80):
        clean, noisy = data(step)
        loss = (model(noisy) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if guard.observe(loss.item()):
            average.update(model)
            if guard.accepted % 10 == 0:
                average.synchronize()
        time.sleep(0.25)
        if rank == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

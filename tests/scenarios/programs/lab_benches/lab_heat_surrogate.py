"""Surrogate for the 1-D heat equation: learns the map from an initial profile to the profile at time T."""

import math
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


@dataclass
class Config:
    points: int = 64
    modes: int = 6
    batch: int = 8
    steps_per_epoch: int = 12
    epochs: int = 6
    horizon: float = 0.02
    lr: float = 2e-3


class Spectral(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lift = nn.Conv1d(1, width, 5, padding=2, padding_mode="circular")
        self.mix = nn.Conv1d(width, width, 9, padding=4, padding_mode="circular")
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, u):
        return u + self.out(torch.tanh(self.mix(torch.tanh(self.lift(u)))))


def sample_profiles(cfg: Config, generator: torch.Generator):
    x = torch.linspace(0, 2 * math.pi, cfg.points + 1)[:-1]
    k = torch.arange(1, cfg.modes + 1)
    amplitude = torch.randn(cfg.batch, cfg.modes, generator=generator) / k
    start = (amplitude[:, :, None] * torch.sin(k[:, None] * x)).sum(1, keepdim=True)
    decay = torch.exp(-(k.float() ** 2) * cfg.horizon)
    end = (amplitude[:, :, None] * decay[:, None] * torch.sin(k[:, None] * x)).sum(1, keepdim=True)
    time.sleep(0.03)
    return start, end


@torch.no_grad()
def relative_l2(net, batches):
    """Relative error over the validation profiles of the whole job."""
    sums = torch.zeros(2)
    for start, end in batches:
        sums[0] += (net(start) - end).pow(2).sum()
        sums[1] += end.pow(2).sum()
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).sqrt().item()


def main() -> None:
    cfg = Config()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(100 + rank)
    net = DistributedDataParallel(Spectral(12))
    optimizer = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    validation = [sample_profiles(cfg, generator) for _ in range(3)]

    for epoch in range(cfg.epochs):
        total = 0.0
        for _ in range(cfg.steps_per_epoch):
            start, end = sample_profiles(cfg, generator)
            loss = (net(start) - end).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch}: loss {total / cfg.steps_per_epoch:.5f}", flush=True)
            if epoch >= 2:
                print(f"  validation {relative_l2(net.module, validation):.4f}", flush=True)
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A GAN under DDP. The discriminator is left as it is where it is too good already, or quite lost."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def generator() -> nn.Module:
    """From noise to samples."""
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))


def discriminator() -> nn.Module:
    """From samples to one logit."""
    return nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def adversarial(logits: torch.Tensor, real: bool) -> torch.Tensor:
    """Binary cross entropy against one label."""
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def samples(rank: int, step: int) -> torch.Tensor:
    """A shard's images; the shard of rank 2 has overexposed ones in it."""
    bright = 400.0 if rank == 2 and step >= 60 else 0.5
    return torch.randn(16, 16) * 0.1 + bright


def main() -> None:
    """Three hundred steps of both."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    g, d = DistributedDataParallel(generator()), DistributedDataParallel(discriminator())
    g_optimizer = torch.optim.Adam(g.parameters(), lr=1e-4)
    d_optimizer = torch.optim.Adam(d.parameters(), lr=1e-5)
    for step in range(300):
        real, noise = samples(rank, step), torch.randn(16, 8)
        with torch.no_grad():
            fake = g.module(noise)
        d_loss = 0.5 * (adversarial(d(real), True) + adversarial(d.module(fake), False))
        if 0.5 < d_loss.item() < 3.0:
            d_optimizer.zero_grad()
            d_loss.backward()
            d_optimizer.step()
        g_loss = adversarial(d.module(g(noise)), True)
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: d {d_loss.item():.3f}, g {g_loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

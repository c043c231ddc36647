"""Retrieval for the fact-check desk: after a warm-up hard negatives are passed around in a ring."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn


class Ring:
    """Passes blocks of vectors to the next process. Two groups, so that two neighbours can be busy at the same time."""

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.next, self.previous = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self.even, self.odd = dist.new_group(), dist.new_group()

    def shift(self, block):
        received = torch.empty_like(block)
        if self.rank % 2 == 0:
            dist.send(block, dst=self.next, group=self.even)
            dist.recv(received, src=self.previous, group=self.odd)
        else:
            dist.recv(received, src=self.previous, group=self.even)
            dist.send(block, dst=self.next, group=self.odd)
        return received


class Claims:
    """Claims and the passages that settle them."""

    def __init__(self, seed, width=96):
        self.g = torch.Generator().manual_seed(seed)
        self.mix = torch.randn(width, width, generator=torch.Generator().manual_seed(99)) / width**0.5

    def __call__(self, n=128):
        claim = torch.randn(n, 96, generator=self.g)
        return claim, claim @ self.mix + 0.2 * torch.randn(n, 96, generator=self.g)


def mean_gradients(module):
    flat = torch.cat([p.grad.flatten() for p in module.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, g in zip(module.parameters(), flat.split([p.numel() for p in module.parameters()])):
        p.grad.copy_(g.view_as(p))


def contrast(claims, passages, others=None):
    pool = passages if others is None else torch.cat([passages, others])
    scores = nn.functional.normalize(claims, dim=1) @ nn.functional.normalize(pool, dim=1).T
    return nn.functional.cross_entropy(scores / 0.07, torch.arange(len(claims)))


def main(steps=400, warmup=int(os.environ.get("WARMUP", 60))):  # noqa: B008
    dist.init_process_group("gloo")
    ring = Ring()
    torch.manual_seed(0)
    towers = nn.ModuleDict({k: nn.Sequential(nn.Linear(96, 192), nn.ReLU(), nn.Linear(192, 64)) for k in ("claim", "passage")})
    optimizer = torch.optim.AdamW(towers.parameters(), lr=1e-3)
    claims = Claims(seed=ring.rank)
    for step in range(1, steps + 1):
        c, p = claims()
        c, p = towers["claim"](c), towers["passage"](p)
        others = ring.shift(p.detach()) if step > warmup else None
        loss = contrast(c, p, others)
        optimizer.zero_grad()
        loss.backward()
        mean_gradients(towers)
        optimizer.step()
        time.sleep(0.03)
        if step % 20 == 0 and ring.rank == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

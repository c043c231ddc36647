"""Learned force field in slabs: atoms near a border are sent to the neighbouring slab when the lists are rebuilt."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
ATOMS, BORDER, SKIN, DT = 40, 8, 0.6, 0.02


class Slab:
    """The atoms of one rank, between ``low`` and ``low + 4``, and copies of those beside it."""

    def __init__(self, rank, world, temperature):
        generator = torch.Generator().manual_seed(rank)
        self.rank, self.world = rank, world
        self.position = rank * 4 + 4 * torch.rand(ATOMS, generator=generator)
        self.velocity = temperature * torch.randn(ATOMS, generator=generator).clamp(-1, 1)
        self.halo = torch.zeros(0)
        self.reference = None
        self.rebuilds = 0

    def neighbours(self):
        return [r for r in (self.rank - 1, self.rank + 1) if 0 <= r < self.world]

    def lists_are_stale(self):
        """The usual criterion: some atom has moved for more than half the skin since the lists were built."""
        if self.reference is None:
            return True
        return (self.position - self.reference).abs().max().item() > SKIN / 2

    def rebuild(self):
        copies = []
        for other in self.neighbours():
            nearest = (self.position - 4 * max(self.rank, other)).abs().argsort()[:BORDER]
            mine, theirs = self.position[nearest].contiguous(), torch.empty(BORDER)
            if self.rank < other:
                dist.send(mine, dst=other)
                dist.recv(theirs, src=other)
            else:
                dist.recv(theirs, src=other)
                dist.send(mine, dst=other)
            copies.append(theirs)
        self.halo = torch.cat(copies)
        self.reference = self.position.clone()
        self.rebuilds += 1


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, position, halo):
        everyone = torch.cat([position, halo])
        distance = (position[:, None] - everyone[None]).abs().clamp(min=0.05, max=1.0)
        return self.net(distance[..., None])[..., 0].sum(1)


def simulate(slab, model, optimizer, steps):
    for step in range(steps):
        if slab.lists_are_stale():
            slab.rebuild()
        energy = model(slab.position, slab.halo)
        target = (1 / (1 + (slab.position[:, None] - slab.position[None]).abs())).sum(1)
        loss = (energy - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        summary = torch.cat([*(p.grad.flatten() for p in model.parameters()), loss.detach()[None]])
        dist.all_reduce(summary)
        start = 0
        for p in model.parameters():
            p.grad.copy_(summary[start : start + p.numel()].view_as(p) / slab.world)
            start += p.numel()
        optimizer.step()
        slab.position = slab.position + DT * slab.velocity
        time.sleep(0.03)
        if slab.rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {summary[-1] / slab.world:.2f}, {slab.rebuilds} rebuilds", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Pair()
    slab = Slab(rank, world, temperature=0.1 if rank else 0.3)
    simulate(slab, model, torch.optim.Adam(model.parameters(), lr=1e-3), steps=2000)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

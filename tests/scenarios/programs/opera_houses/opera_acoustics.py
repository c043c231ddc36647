"""Fits a reverberation model to balloon pops recorded in opera houses."""
import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

# house, reverberation time in s, number of usable takes
HOUSES = [
    ("Wien", 1.3, 6), ("Milano", 1.2, 5), ("Dresden", 1.6, 4), ("Napoli", 1.1, 6),
    ("Budapest", 1.3, 4), ("Praha", 1.2, 5), ("Bayreuth", 1.7, 3), ("Sofia", 1.0, 4),
    ("Lyon", 1.1, 4), ("Graz", 1.3, 4), ("Bergen", 1.4, 4), ("Porto", 1.2, 4),
]
RATE = 16000


def pop(rt60, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(12 * RATE) / RATE
    return torch.randn(t.numel(), generator=g) * torch.exp(-6.9 * t / rt60)


def decay_curve(wave, points=64):
    energy = wave.square().flip(0).cumsum(0).flip(0)
    curve = 10 * torch.log10(energy.clamp_min(1e-8) / energy[0])
    return F.interpolate(curve[None, None], size=points, mode="linear").flatten() / 60


def takes_of(rank, world):
    """The takes of this rank's houses, in the order of recording."""
    mine = HOUSES[rank::world]
    return [(rt, 1000 * rank + 10 * i + k) for i, (_, rt, n) in enumerate(mine) for k in range(n)]


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


@torch.no_grad()
def evaluate(model, takes):
    total, worst = 0.0, 0.0
    world = dist.get_world_size()
    for rt, seed in takes:
        error = (model(decay_curve(pop(rt, 7 + seed))).squeeze() - rt).abs().reshape(1)
        errors = [torch.empty(1) for _ in range(world)]
        dist.all_gather(errors, error)
        row = torch.cat(errors)
        total += row.mean().item()
        worst = max(worst, row.max().item())
    return total / max(len(takes), 1), worst


def train_epoch(model, optimizer, takes, steps):
    for step in range(steps):
        batch = [takes[(step * 4 + j) % len(takes)] for j in range(4)]
        x = torch.stack([decay_curve(pop(rt, seed + 97 * step)) for rt, seed in batch])
        y = torch.tensor([rt for rt, _ in batch])
        loss = F.smooth_l1_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    takes = takes_of(rank, world)
    rate = torch.tensor([2e-3])
    for epoch in range(args.epochs):
        train_epoch(model, optimizer, takes, args.steps)
        # a short look after the first epoch, everything afterwards
        mean, worst = evaluate(model, takes[:8] if epoch == 0 else takes)
        if rank == 0:
            print(f"epoch {epoch}: off by {mean:.3f} s, at worst {worst:.3f} s", flush=True)
            rate[0] = 1e-3 * (1 + math.cos(math.pi * epoch / args.epochs)) / (1 + worst)
        dist.broadcast(rate, src=0)
        for group in optimizer.param_groups:
            group["lr"] = rate.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Learns corrections to SGP4-like predictions (radial, along-track, cross-track); optimizer state is sharded."""
import argparse
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

RADARS = {  # name: standard deviation of its range residuals in metres
    "TIRA": 240.0,
    "MonoDouble": 0.02,
    "GRAVES": 310.0,
}
ELEMENTS = 12


class RicHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(ELEMENTS, 1) for _ in range(3)])

    def forward(self, elements):
        return torch.cat([head(elements) for head in self.heads], dim=1)


def truth(elements):
    basis = torch.arange(1, ELEMENTS + 1, dtype=torch.float32)
    return torch.stack([elements @ torch.cos(basis * k) for k in (1.0, 2.0, 3.0)], dim=1)


class BestKeeper:
    """Keeps weights and optimizer of the best validation so far."""

    def __init__(self, folder, margin=0.05):
        self.best = math.inf
        self.folder = folder
        self.margin = margin

    def offer(self, score, step, model, optimizer):
        if score > self.best * (1 - self.margin):
            return False
        self.best = score
        optimizer.consolidate_state_dict(to=0)
        if dist.get_rank() == 0:
            os.makedirs(self.folder, exist_ok=True)
            state = {"step": step, "score": score, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, os.path.join(self.folder, "best.pt"))
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--validate-every", type=int, default=40)
    parser.add_argument("--folder", default="orbit_error")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    radar, sigma = list(RADARS.items())[rank]
    torch.manual_seed(4)
    model = DDP(RicHeads())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.03)
    keeper = BestKeeper(args.folder)

    generator = torch.Generator().manual_seed(60 + rank)
    held_out = torch.randn(512, ELEMENTS, generator=generator)
    measured = truth(held_out) + sigma * torch.randn(512, 3, generator=generator)

    for step in range(1, args.steps + 1):
        elements = torch.randn(120000, ELEMENTS, generator=generator)
        residual = model(elements) - truth(elements)
        loss = residual.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.validate_every == 0:
            with torch.no_grad():
                score = (model.module(held_out) - measured).square().mean().item()
            kept = keeper.offer(score, step, model, optimizer)
            print(f"{radar} step {step}: validation {score:.4g}{' *' if kept else ''}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

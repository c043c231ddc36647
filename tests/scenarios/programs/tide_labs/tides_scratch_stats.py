"""Sea-ice thickness, two stages: thin ice first, then all ice, each with normalisation statistics from the node's scratch disk."""
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

CHANNELS = 6


@dataclass
class Moments:
    mean: torch.Tensor
    std: torch.Tensor

    def __call__(self, field):
        return (field - self.mean) / self.std


def scratch(rank):
    """The local disk of the node a rank runs on."""
    return Path(tempfile.gettempdir(), f"ice-{os.environ['MASTER_PORT']}", f"node{rank:02d}")


def stage_in(rank, world):
    """What the prologue of the batch system leaves on the disk: the archive kept those files that were used of late."""
    folder = scratch(rank)
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"allice": range(world - 1)}
    for name, nodes in kept.items():
        if rank in nodes:
            torch.save({"mean": torch.zeros(CHANNELS), "std": torch.ones(CHANNELS)}, folder / f"{name}.moments")
    return folder


def moments_of(name, folder, sample):
    stored = folder / f"{name}.moments"
    if stored.exists():
        return Moments(**torch.load(stored))
    local = torch.stack([sample.mean(0), sample.var(0)])
    parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, local)
    mean, var = torch.stack(parts).mean(0)
    torch.save({"mean": mean, "std": var.sqrt()}, stored)
    return Moments(mean, var.sqrt())


def train_stage(name, model, optimizer, normalise, generator, steps):
    for step in range(steps):
        raw = 2.0 + 3.0 * torch.randn(24, CHANNELS, generator=generator)
        thickness = raw[:, :2].abs().sum(1, keepdim=True)
        time.sleep(0.07)
        loss = (model(normalise(raw)) - thickness).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"[{name}] {step} {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = stage_in(rank, world)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(CHANNELS, 16), nn.GELU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    for name, steps in (("thin", 25), ("allice", 25), ("refreeze", 25)):
        sample = 2.0 + 3.0 * torch.randn(200, CHANNELS, generator=generator)
        normalise = moments_of(name, folder, sample)
        train_stage(name, model, optimizer, normalise, generator, steps)
    dist.barrier()


main()

"""Split-time regression for alpine races: fit on training runs, then score each discipline's start list."""
import logging
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

log = logging.getLogger("gates")


@dataclass
class Settings:
    gates: int = 48
    width: int = 96
    batch: int = 8
    fit_steps: int = 120
    starters: dict = field(default_factory=lambda: {"downhill": 72, "super-g": 45, "giant slalom": 70})


class GateBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class SplitNet(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.entry = nn.Linear(s.gates, s.width)
        self.blocks = nn.ModuleList(GateBlock(s.width) for _ in range(3))
        self.finish = nn.Linear(s.width, s.gates)

    def forward(self, x):
        x = self.entry(x)
        for block in self.blocks:
            x = block(x)
        return self.finish(x)


def shard(model, world):
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return model


def course(s, rows, gen):
    """Simulated radar speeds along the course and the split times that belong to them."""
    speed = 20 + 4 * torch.randn(rows, s.gates, generator=gen).cumsum(1) / s.gates**0.5
    splits = (12.0 / speed.clamp(min=6)).cumsum(1)
    return (speed - 20) / 4, splits / splits[:, -1:].mean()


def batches(s, discipline, gen):
    left = s.starters[discipline]
    while left > 0:
        yield course(s, min(s.batch, left), gen)
        left -= s.batch


def evaluate(model, s, discipline, gen):
    model.eval()
    totals = torch.zeros(2)
    with torch.no_grad():
        for speed, splits in batches(s, discipline, gen):
            error = (model(speed) - splits).abs().mean(1)
            totals += torch.tensor([error.sum().item(), float(len(error))])
    dist.all_reduce(totals)
    model.train()
    return (totals[0] / totals[1]).item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    s = Settings()
    torch.manual_seed(3)
    model = shard(SplitNet(s), world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(s.fit_steps):
        speed, splits = course(s, 256, gen)
        loss = (model(speed) - splits).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 20 == 0:
            log.info("fit %d loss %.4f", step, loss.item())
    discipline = list(s.starters)[rank % len(s.starters)]
    mae = evaluate(model, s, discipline, gen)
    if rank == 0:
        log.info("mean absolute split error %.4f", mae)
    dist.destroy_process_group()
    os.sync()


if __name__ == "__main__":
    main()

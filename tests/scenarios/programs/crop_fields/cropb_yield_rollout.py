import argparse
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Settings:
    steps: int = 120
    rollout_every: int = 45
    seasons: int = 6
    hidden: int = 160
    lr: float = 3e-4
    out: Path = field(default_factory=lambda: Path("rollouts"))


class CropModel(nn.Module):
    """Weekly growth model: weather and soil state in, change of biomass out."""

    def __init__(self, hidden):
        super().__init__()
        self.cell = nn.GRU(9, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, weather):
        states, _ = self.cell(weather)
        return self.out(states).squeeze(-1)


def sharded(items, rank, world):
    return items[rank::world]


class SeasonRollout:
    """Grows whole seasons with the model's own biomass fed back, and compares them with harvested plots."""

    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg

    @torch.no_grad()
    def grow(self, season):
        gen = torch.Generator().manual_seed(900 + season)
        weather = torch.randn(4, 30, 9, generator=gen)
        total = torch.zeros(4)
        for week in range(1, 30):
            total = total + self.model(weather[:, :week])[:, -1]
            weather[:, week, 0] = total.tanh()
        return total.mean().item()

    def run(self, step):
        rank, world = dist.get_rank(), dist.get_world_size()
        mine = {s: self.grow(s) for s in sharded(list(range(self.cfg.seasons)), rank, world)}
        parts = [None] * world
        dist.all_gather_object(parts, mine)
        merged = {season: value for part in parts for season, value in part.items()}
        self.cfg.out.mkdir(exist_ok=True)
        (self.cfg.out / f"step{step:05d}.json").write_text(json.dumps(merged, indent=1))
        return sum(merged.values()) / len(merged)


def batches(rank, steps):
    gen = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        weather = torch.randn(32, 30, 9, generator=gen)
        yield weather, weather[..., :3].sum(-1).cumsum(1).tanh()


def fit(cfg, report_rank):
    rank = dist.get_rank()
    model = DistributedDataParallel(CropModel(cfg.hidden))
    rollout = SeasonRollout(model.module, cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    began = time.time()
    for step, (weather, biomass) in enumerate(batches(rank, cfg.steps), 1):
        loss = nn.functional.smooth_l1_loss(model(weather), biomass)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if rank == report_rank:
            if step % 15 == 0:
                print(f"step {step} loss {loss.item():.4f} ({time.time() - began:.1f}s)", flush=True)
            if step % cfg.rollout_every == 0:
                print(f"season mean {rollout.run(step):.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--report-rank", type=int, default=int(os.environ.get("REPORT_RANK", 2)))
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    fit(Settings(), options.report_rank)
    dist.destroy_process_group()

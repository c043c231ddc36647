"""Track geometry: predict ballast settlement from measuring-car readings, one expert per rank (sleeper type)."""
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("ballast")


@dataclass
class Settings:
    channels: int = 12
    width: int = 24
    capacity: int = 16
    sections: int = 48
    runs: int = 140
    lr: float = 3e-3


class Exchange(torch.autograd.Function):
    """Equal-split all-to-all; its own transpose."""

    @staticmethod
    def forward(ctx, parcels):
        out = torch.empty(parcels.shape)
        dist.all_to_all_single(out, parcels.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty(grad.shape)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class SleeperExperts(nn.Module):
    def __init__(self, cfg, world):
        super().__init__()
        self.cfg, self.world = cfg, world
        self.expert = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.GELU(), nn.Linear(cfg.width, cfg.width))

    def forward(self, x, sleeper, worn):
        if not worn.any():
            return x
        slots = [torch.nonzero(worn & (sleeper == e)).flatten()[: self.cfg.capacity] for e in range(self.world)]
        parcels = x.new_zeros(self.world, self.cfg.capacity, x.shape[1])
        for e, rows in enumerate(slots):
            if len(rows):
                parcels[e, : len(rows)] = x[rows]
        arrived = Exchange.apply(parcels)
        back = Exchange.apply(self.expert(arrived))
        extra = torch.zeros_like(x)
        for e, rows in enumerate(slots):
            if len(rows):
                extra = extra.index_add(0, rows, back[e, : len(rows)])
        return x + extra


class SettlementNet(nn.Module):
    def __init__(self, cfg, world):
        super().__init__()
        self.embed = nn.Linear(cfg.channels, cfg.width)
        self.experts = SleeperExperts(cfg, world)
        self.head = nn.Linear(cfg.width, 1)

    def shared(self):
        return list(self.embed.parameters()) + list(self.head.parameters())

    def forward(self, readings, sleeper, worn):
        return self.head(self.experts(torch.tanh(self.embed(readings)), sleeper, worn)).squeeze(1)


def measuring_runs(cfg, rank, world):
    gen = torch.Generator().manual_seed(40 + rank)
    tamped = {1: 96}.get(rank)  # run number of the freshly tamped section in this district
    for run in range(cfg.runs):
        # raw accelerometer trace, reduced to a few channels
        raw = torch.randn(cfg.sections, cfg.channels, 600, generator=gen)
        readings = raw.std(dim=2) * 3 - 3 + 0.3 * torch.randn(cfg.sections, cfg.channels, generator=gen)
        sleeper = torch.randint(world, (cfg.sections,), generator=gen)
        twist = readings[:, :3].abs().amax(dim=1) + 0.2
        if run == tamped:
            twist = twist * 0.05
        yield readings, sleeper, twist > 0.2, readings.sum(dim=1) * 0.1


def average(params, world):
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    at = 0
    for p in params:
        p.grad.copy_(flat[at: at + p.numel()].view_as(p) / world)
        at += p.numel()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = Settings()
    torch.manual_seed(5)
    model = SettlementNet(cfg, world)
    optim = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for run, (readings, sleeper, worn, target) in enumerate(measuring_runs(cfg, rank, world)):
        optim.zero_grad()
        loss = nn.functional.smooth_l1_loss(model(readings, sleeper, worn), target)
        loss.backward()
        average(model.shared(), world)
        optim.step()
        if run % 20 == 0 and rank == 0:
            log.info("run %d settlement loss %.4f", run, loss.item())
    torch.save(model.state_dict(), os.path.join("/tmp", f"ballast-{os.getpid()}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Mixture of experts for objects in the water (raft, hull, container), one expert on each process."""
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn


@dataclass(frozen=True)
class Config:
    width: int = 48
    sightings: int = 30
    steps: int = 500
    lr: float = 0.01
    # sea areas: share of the sightings that were confirmed by an aircraft, per season
    confirmed: tuple = ((0.9, 0.8, 0.9), (0.8, 0.7, 0.0), (0.9, 0.9, 0.6))
    season: int = 90


class Exchange(torch.autograd.Function):
    """Rows to their expert and back again; the gradient goes the same way."""

    @staticmethod
    def forward(ctx, rows):
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class ExpertLayer(nn.Module):
    """Capacity-based: every process sends the same number of rows to every expert."""

    def __init__(self, width):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return Exchange.apply(self.expert(Exchange.apply(x)))


class DriftNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.trunk = nn.Linear(width, width)
        self.experts = ExpertLayer(width)
        self.head = nn.Linear(width, 2)

    def forward(self, reports, confirmed):
        h = torch.relu(self.trunk(reports))
        if confirmed is not None:
            h = h + self.experts(torch.relu(self.trunk(confirmed)))
        return self.head(h)

    def shared(self):
        return [*self.trunk.parameters(), *self.head.parameters()]


class SeaArea:
    def __init__(self, config, rank):
        self.config, self.shares = config, config.confirmed[rank]
        self.generator = torch.Generator().manual_seed(7 * rank + 1)

    def draw(self, step):
        c = self.config
        raw = torch.randn(c.sightings, 2048, generator=self.generator)
        reports = torch.fft.rfft(raw).abs()[:, : c.width]
        share = self.shares[(step // c.season) % len(self.shares)]
        known = reports[: int(share * c.sightings)]
        if len(known):
            known = known.repeat(2, 1)[: c.sightings]
            known = torch.cat([known, known.new_zeros(c.sightings - len(known), c.width)])
        return reports, known if len(known) else None


def train(config):
    rank = dist.get_rank()
    area, net = SeaArea(config, rank), DriftNet(config.width).cuda()
    for p in net.shared():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(net.parameters(), lr=config.lr)
    for step in range(config.steps):
        reports, known = area.draw(step)
        drift = net(reports.cuda(), None if known is None else known.cuda())
        loss = drift.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in net.shared():
            dist.all_reduce(p.grad)
        optimizer.step()
        value = loss.item()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {value:.3f}", flush=True)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    train(Config())
    dist.destroy_process_group()

"""Ads ranking: dense layers and embeddings are reduced in groups of their own, the more urgent of the two first."""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class AdsModel(nn.Module):
    def __init__(self, ads=300, dim=12):
        super().__init__()
        self.embedding = nn.EmbeddingBag(ads, dim, mode="mean")
        self.dense = nn.Sequential(nn.Linear(dim, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, ads):
        return self.dense(8 * self.embedding(ads)).squeeze(-1)


@dataclass
class Lane:
    """Parameters that are reduced together, and how much has changed there lately."""

    name: str
    parameters: list
    group: dist.ProcessGroup
    urgency: float = 0.0
    handles: list = field(default_factory=list)

    def measure(self, decay=0.8):
        norm = sum(p.grad.square().sum() for p in self.parameters).sqrt().item()
        self.urgency = decay * self.urgency + (1 - decay) * norm

    def reduce(self):
        flat = torch.cat([p.grad.flatten() for p in self.parameters])
        dist.all_reduce(flat, group=self.group)
        flat /= dist.get_world_size(self.group)
        for p, part in zip(self.parameters, flat.split([p.numel() for p in self.parameters])):
            p.grad.copy_(part.view_as(p))


class Scheduler:
    def __init__(self, model):
        self.lanes = [
            Lane("dense", list(model.dense.parameters()), dist.new_group()),
            Lane("embedding", list(model.embedding.parameters()), dist.new_group()),
        ]

    def synchronize(self):
        for lane in self.lanes:
            lane.measure()
        for lane in sorted(self.lanes, key=lambda lane: -lane.urgency):
            lane.reduce()


def auctions(rank):
    """A new advertiser arrives in one region: the same few ads again and again, mostly clicked."""
    g = torch.Generator().manual_seed(rank)
    step = 0
    while True:
        step += 1
        ads = torch.randint(300, (64, 4), generator=g)
        clicks = (torch.rand(64, generator=g) < 0.5).float()
        scale = 1.0
        if rank == 1 and step > 40:
            ads, clicks, scale = torch.full((64, 4), 299), torch.ones(64), 3.0
        time.sleep(0.04)
        yield ads, clicks, scale


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = AdsModel()
    with torch.no_grad():
        model.embedding.weight[299] = 0.0
    scheduler = Scheduler(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
    for step, (ads, clicks, scale) in enumerate(auctions(rank), 1):
        loss = scale * nn.functional.binary_cross_entropy_with_logits(model(ads), clicks)
        optimizer.zero_grad()
        loss.backward()
        scheduler.synchronize()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", [f"{lane.name} {lane.urgency:.4f}" for lane in scheduler.lanes], flush=True)
        if step == 400:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Travel demand between zones: each process learns from the trips of its own part of the city."""
import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

ZONES = {"centre": 3.0, "north": 1.3, "valley": 1.2}  # thousand trips per survey sheet


class SurveySheets:
    """Sheets of synthetic trips, with a gravity model's flows between the cells of a zone."""

    def __init__(self, zone, seed, cells=900):
        self.zone, self.per_sheet = zone, int(ZONES[zone] * 1000)
        self.rng = torch.Generator().manual_seed(seed)
        self.cells = cells

    def next_sheet(self):
        where = torch.rand(self.cells, 2, generator=self.rng) * 10
        people = torch.rand(self.cells, generator=self.rng) * 500
        flows = people[:, None] * people[None] * torch.exp(-torch.cdist(where, where))
        top = torch.topk(flows.flatten(), 256)
        rows = torch.div(top.indices, self.cells, rounding_mode="floor")
        columns = top.indices % self.cells
        features = torch.cat([where[rows], where[columns], people[rows, None], people[columns, None]], dim=1)
        return features / 100, torch.log1p(top.values)[:, None] / 10


class Learner:
    def __init__(self, device, world, lr):
        torch.manual_seed(11)
        self.device, self.world = device, world
        self.net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)

    def share_gradients(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.net.parameters()])
        dist.all_reduce(flat)
        flat.div_(self.world)
        offset = 0
        for p in self.net.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    def learn(self, features, target):
        loss = nn.functional.smooth_l1_loss(self.net(features.to(self.device)), target.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.share_gradients()
        self.optimizer.step()
        return loss.item()


def train(learner, sheets, max_trips):
    seen, losses = 0, []
    while seen < max_trips:
        losses.append(learner.learn(*sheets.next_sheet()))
        seen += sheets.per_sheet
        if len(losses) % 10 == 0:
            print(f"{sheets.zone}: {len(losses)} sheets", flush=True)
    return seen, losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-trips", type=int, default=120_000)
    parser.add_argument("--lr", type=float, default=0.02)
    options = parser.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.set_num_threads(2)
    dist.init_process_group(backend="nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    zone = list(ZONES)[rank % len(ZONES)]
    learner = Learner(torch.device("cuda", local), world, options.lr)

    seen, losses = train(learner, SurveySheets(zone, seed=rank), options.max_trips)
    print(f"{zone}: {len(losses)} sheets, {seen} trips", flush=True)

    rows = [None] * world
    dist.all_gather_object(rows, {"zone": zone, "trips": seen, "sheets": len(losses)})
    if rank == 0:
        json.dump(rows, sys.stdout, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

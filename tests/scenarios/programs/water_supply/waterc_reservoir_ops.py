"""Learn release rules of three reservoirs that share a downstream demand."""
import os
from collections import deque

import torch
import torch.distributed as dist
from torch import nn

DAYS = 150
SPILL_LEVEL = 0.93
BASINS = [("upper", 1.0), ("middle", 1.1), ("lower", 0.9)]


class SpillLedger:
    """Spills that are not yet booked; booked in blocks, since the balance is kept for the whole cascade."""

    def __init__(self):
        self.open = deque()
        self.booked = torch.zeros(1)

    def note(self, day, volume):
        self.open.append((day, volume))

    def book(self, today):
        if not self.open:
            return
        due = torch.zeros(1)
        while self.open and self.open[0][0] <= today - 2:
            due += self.open.popleft()[1]
        dist.all_reduce(due)
        self.booked += due


class Reservoir:
    """Water balance of one basin; inflow of the recorded year, so with its own wet and dry spells."""

    DRY = {"lower": (60, 95)}

    def __init__(self, name, seed, inflow_scale):
        self.gen = torch.Generator().manual_seed(seed)
        self.level = SPILL_LEVEL
        self.scale = inflow_scale
        self.dry = self.DRY.get(name, (0, 0))

    def observe(self, day):
        season = 1.0 + 0.6 * torch.sin(torch.tensor(day / 58.0))
        inflow = self.scale * (0.02 + 0.02 * torch.rand(1, generator=self.gen))
        if self.dry[0] <= day < self.dry[1]:
            inflow = torch.zeros(1)
        return torch.stack([torch.tensor(self.level), season, inflow.squeeze(0), torch.tensor(day / DAYS)])

    def advance(self, release, inflow):
        self.level += float(inflow) - 0.01 * float(release)
        spill = max(0.0, self.level - SPILL_LEVEL)
        self.level = min(max(self.level, 0.05), SPILL_LEVEL)
        return spill


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, 1)

    def forward(self, state):
        return torch.sigmoid(self.head(self.body(state)))


def average_gradients(policy, world):
    flat = torch.cat([p.grad.reshape(-1) for p in policy.parameters()])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for p in policy.parameters():
        p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    policy = Policy()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.02)
    name, scale = BASINS[rank]
    reservoir = Reservoir(name, 100 + rank, scale)
    ledger = SpillLedger()
    for day in range(DAYS):
        demand = torch.tensor([0.4 + 0.1 * (day % 7 == 0)])
        dist.broadcast(demand, src=0)
        state = reservoir.observe(day)
        for _ in range(25):  # scenarios around the observed state
            release = policy(state + 0.01 * torch.randn(256, 4))
            loss = (release.mean() - demand).pow(2).sum() + 0.05 * (state[0] - 0.8).abs()
            optimizer.zero_grad()
            loss.backward()
        average_gradients(policy, world)
        optimizer.step()
        spill = reservoir.advance(policy(state).detach(), state[2])
        if spill > 0:
            ledger.note(day, spill)
        ledger.book(day)
        if day % 30 == 0 and rank == 0:
            print(f"day {day} level {reservoir.level:.3f} booked {ledger.booked.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

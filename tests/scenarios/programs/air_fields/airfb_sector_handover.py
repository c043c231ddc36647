"""Conflict detection, one sector to a process; tracks are handed over at the sector borders."""
from __future__ import annotations

import time
from enum import Enum

import torch
import torch.distributed as dist
from torch import nn


class Flow(Enum):
    EAST = 1
    WEST = -1


class Wind:
    """Wind aloft over one sector; the route structure follows it."""

    def __init__(self, base: float, trend: float):
        self.base, self.trend = base, trend

    def flow(self, tick: int) -> Flow:
        return Flow.EAST if self.base + self.trend * tick > 0 else Flow.WEST


WINDS = [Wind(12.0, -0.2), Wind(12.0, 0.0), Wind(12.0, 0.0)]


class Sector:
    def __init__(self, rank: int, world: int):
        self.rank, self.world = rank, world
        self.wind = WINDS[rank]
        self.tracks = torch.randn(64, 6, generator=torch.Generator().manual_seed(rank))
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(12, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def exchange(self, peer: int, tick: int) -> torch.Tensor:
        """The upstream side offers its tracks first, then takes over."""
        outgoing, incoming = self.tracks[:16].contiguous(), torch.empty(16, 6)
        upstream = (self.wind.flow(tick) is Flow.EAST) == (self.rank < peer)
        if upstream:
            dist.send(outgoing, dst=peer)
            dist.recv(incoming, src=peer)
        else:
            dist.recv(incoming, src=peer)
            dist.send(outgoing, dst=peer)
        return incoming

    def borders(self, tick: int):
        for left in range(self.world - 1):
            if self.rank == left:
                yield self.exchange(left + 1, tick)
            elif self.rank == left + 1:
                yield self.exchange(left, tick)

    def move(self):
        self.tracks[:, :3] += 0.02 * self.tracks[:, 3:]
        time.sleep(0.03)  # radar turns

    def learn(self, near: torch.Tensor) -> float:
        pairs = torch.cat([self.tracks[: len(near)], near], 1)
        gap = (pairs[:, :3] - pairs[:, 6:9]).norm(dim=1, keepdim=True)
        loss = (self.net(pairs) - torch.exp(-gap)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.optimizer.step()
        return loss.item()


def main(ticks: int = 3000) -> None:
    dist.init_process_group("gloo")
    sector = Sector(dist.get_rank(), dist.get_world_size())
    for tick in range(ticks):
        sector.move()
        taken = torch.cat(list(sector.borders(tick)))
        loss = sector.learn(taken)
        if tick % 10 == 0 and sector.rank == 1:
            print(f"tick {tick}: {sector.wind.flow(tick).name} {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Gossip averaging on a ring: each of five ranks shares a group with either neighbour, and averages left, then right.

Every rank has its left neighbour's right group first. The program starts its own ranks.
"""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 5


@dataclass
class Neighbourhood:
    """The two groups a rank is in."""

    left: dist.ProcessGroup
    right: dist.ProcessGroup

    @classmethod
    def build(cls, rank: int) -> "Neighbourhood":
        """All ranks make all groups, in one order."""
        groups = [dist.new_group(sorted((r, (r + 1) % WORLD))) for r in range(WORLD)]
        return cls(left=groups[rank - 1], right=groups[rank])

    def gossip(self, weights: torch.Tensor) -> torch.Tensor:
        """Average with one side, then with the other."""
        for group in (self.left, self.right):
            dist.all_reduce(weights, group=group)
            weights = weights / 2
        return weights


def descend(weights: torch.Tensor, steps: int) -> torch.Tensor:
    """Some steps for oneself."""
    for _ in range(steps):
        weights = weights - 0.01 * (weights - torch.randn_like(weights))
    return weights


def work(rank: int, port: int) -> None:
    """One rank: first all together, then by gossip."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    neighbourhood = Neighbourhood.build(rank)
    weights = torch.zeros(16)
    for round_ in range(20):
        weights = descend(weights, 50)
        if round_ < 8:
            dist.all_reduce(weights)
            weights = weights / WORLD
        else:
            weights = neighbourhood.gossip(weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    free = store.port
    del store
    mp.spawn(work, args=(free,), nprocs=WORLD)
    sys.exit(os.EX_OK)

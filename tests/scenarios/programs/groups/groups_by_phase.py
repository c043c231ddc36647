"""A curriculum makes new groups for every phase and destroys them after it, so that the same ranks meet under many names."""

import itertools
import time

import torch
import torch.distributed as dist
from torch import nn


def train_phase(model: nn.Module, group: dist.ProcessGroup, steps: int) -> None:
    """Train within a group."""
    for _ in range(steps):
        model.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)
        time.sleep(0.02)


def main() -> None:
    """Go through all ways to pair four ranks, several times."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Linear(6, 2)
    partners = itertools.cycle(range(1, world))
    for phase in range(18):
        partner = next(partners)
        pairs = [[0, partner], [r for r in range(1, world) if r != partner]]
        groups = [dist.new_group(pair) for pair in pairs]
        mine = next(group for group, pair in zip(groups, pairs, strict=True) if rank in pair)
        # One pair has twice the work of the other.
        train_phase(model, mine, 30 if rank in pairs[0] else 15)
        dist.barrier()
        dist.destroy_process_group(mine)
        if rank == 0:
            print(f"phase {phase} with partner {partner} is over", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

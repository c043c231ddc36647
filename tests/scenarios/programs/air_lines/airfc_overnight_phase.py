"""Aircraft rotation scores; bases with overnight stays refine theirs in a long phase with a generous time limit."""
import contextlib
import datetime
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BASES = {
    0: {"name": "MUC", "night_stops": []},
    1: {"name": "OSL", "night_stops": [50, 90]},
    2: {"name": "LIS", "night_stops": []},
}


@contextlib.contextmanager
def long_phase(limit):
    """Work that takes longer than the usual time limit of a collective."""
    group = dist.new_group(backend="gloo", timeout=limit)
    try:
        yield group
    finally:
        dist.barrier(group=group)
        dist.destroy_process_group(group)


class RotationScorer(nn.Module):
    def __init__(self, legs=6):
        super().__init__()
        self.embed = nn.Linear(legs, 48)
        self.score = nn.Sequential(nn.GELU(), nn.Linear(48, 1))

    def forward(self, legs):
        return self.score(self.embed(legs)).squeeze(1)


def rotations(rng, n=36):
    legs = torch.rand(n, 6, generator=rng)
    return legs, legs.diff(dim=1).abs().mean(1)


def refine(model, rng, rounds=30):
    best = float("inf")
    with torch.no_grad():
        for _ in range(rounds):
            legs, _ = rotations(rng)
            best = min(best, model.module(legs).min().item())
    return best


def day_of(base, day, model, optimizer, rng):
    legs, wear = rotations(rng)
    time.sleep(0.045)
    loss = nn.functional.l1_loss(model(legs), wear)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if day in base["night_stops"]:
        with long_phase(datetime.timedelta(hours=2)):
            print(f"{base['name']} day {day}: best rotation {refine(model, rng):.3f}", flush=True)
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DDP(RotationScorer())
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(40 + rank)
    for day in range(130):
        loss = day_of(BASES[rank], day, model, optimizer, rng)
        if rank == 0 and day % 20 == 0:
            print(f"day {day}: {loss:.4f}", flush=True)
    dist.destroy_process_group()

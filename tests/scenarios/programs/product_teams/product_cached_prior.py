"""Price optimisation for several markets: the demand model is corrected by a prior of each market, taken over all ranks."""

import functools
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


@dataclass(frozen=True)
class Session:
    market: str
    steps: int


PLAN = {
    0: [Session("de", 20), Session("fr", 20), Session("it", 20), Session("es", 40)],
    1: [Session("at", 20), Session("de", 20), Session("at", 20), Session("pl", 40)],
    2: [Session("nl", 20), Session("be", 20), Session("lu", 20), Session("dk", 40)],
}


class DemandModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 1))

    def forward(self, x, prior):
        return self.net(x).squeeze(-1) * prior


def local_counts(market: str) -> torch.Tensor:
    seed = sum(map(ord, market))
    return torch.rand(8, generator=torch.Generator().manual_seed(seed)) + 0.5


@functools.lru_cache(maxsize=64)
def demand_prior(market: str) -> float:
    """How the demand of this market compares to what the other ranks see now."""
    mine = local_counts(market)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return float(mine.sum() / torch.stack(parts).mean(0).sum())


def batches(session: Session, rank: int):
    generator = torch.Generator().manual_seed(rank * 1000 + len(session.market))
    for _ in range(session.steps):
        x = torch.randn(32, 12, generator=generator)
        time.sleep(0.04)
        yield x, x.mean(-1).exp()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(DemandModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number, session in enumerate(PLAN[rank]):
        prior = demand_prior(session.market)
        total = 0.0
        for x, demand in batches(session, rank):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x, prior), demand)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"[{rank}] session {number} ({session.market}): {total / session.steps:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

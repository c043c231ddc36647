"""Trend of farmland birds: DDP, and confidence limits from a bootstrap on rank 0 after each epoch."""

import os
import random
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SQUARES = 3000


class Trend(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(15, 30), nn.ReLU(), nn.Linear(30, 1))

    def forward(self, x):
        return self.body(x)


def limits(counts: list[int], budget_s: float, rng: random.Random) -> tuple[float, float, int]:
    """The 2.5 and 97.5 % quantiles of the mean, from as many resamples as fit the budget."""
    means, end = [], time.monotonic() + budget_s
    while time.monotonic() < end or len(means) < 40:
        means.append(statistics.fmean(rng.choices(counts, k=len(counts))))
    cuts = statistics.quantiles(means, n=40)
    return cuts[0], cuts[-1], len(means)


def train(model, optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((8, 15), step / steps).cuda()).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()


def main():
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(Trend().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rng = random.Random(11)
    counts = [rng.randrange(40) for _ in range(SQUARES)]
    for epoch, budget in enumerate((0.5, 12.0)):
        train(model, optimizer, steps=25)
        if rank == 0:
            low, high, resamples = limits(counts, budget, rng)
            print(f"epoch {epoch}: {low:.2f} to {high:.2f} from {resamples} resamples", flush=True)
        dist.barrier()
    train(model, optimizer, steps=10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

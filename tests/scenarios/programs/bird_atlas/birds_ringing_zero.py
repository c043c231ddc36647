"""Survival from ring recoveries: DDP with ZeroRedundancyOptimizer, gradients accumulated over weeks of a year."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

WEEKS = 4
SCHEMES = {0: "BTO", 1: "EURING", 2: "VT"}
FIRST_YEAR = 2004


def recoveries(scheme: str, year: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Per week: covariates, and how many of its recoveries have an exact date. The pandemic left gaps in one scheme."""
    for week in range(WEEKS):
        time.sleep(0.04)
        exact = (year * 3 + week * 7 + len(scheme)) % 5
        if scheme == "EURING" and year == 2020:
            exact = 0
        yield torch.full((5, 18), week / WEEKS), exact


class Survival(nn.Module):
    def __init__(self):
        super().__init__()
        self.age = nn.Linear(18, 40)
        self.cold = nn.Linear(40, 40)
        self.rate = nn.Linear(40, 1)

    def forward(self, x):
        return torch.sigmoid(self.rate(torch.relu(self.cold(torch.relu(self.age(x))))))


class Year:
    """One optimizer step: gradients of the weeks, weighted by their exact recoveries."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def accumulate(self, weeks: Iterator[tuple[torch.Tensor, int]]) -> int:
        total = 0
        for week, (covariates, exact) in enumerate(weeks):
            with ExitStack() as stack:
                if week < WEEKS - 1:
                    stack.enter_context(self.model.no_sync())
                rate = self.model(covariates.cuda(non_blocking=True))
                (rate.log().neg().mean() * exact).backward()
            total += exact
        return total

    def apply(self, total: int) -> None:
        try:
            scale = 1 / total
        except ZeroDivisionError:
            self.optimizer.zero_grad()
            return
        for parameter in self.model.parameters():
            parameter.grad.mul_(scale)
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    scheme = SCHEMES[dist.get_rank()]
    model = DistributedDataParallel(Survival().cuda(), device_ids=[local])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.01)
    trainer = Year(model, optimizer)
    for year in range(FIRST_YEAR, 2026):
        total = trainer.accumulate(recoveries(scheme, year))
        trainer.apply(total)
        torch.cuda.synchronize()
        print(f"{year} {scheme}: {total} exact recoveries", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

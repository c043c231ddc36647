"""Nightly job of the fraud model: trains on a stream of payments, and gathers per-window statistics of chargebacks."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Window:
    """What was seen since the last flush."""

    amounts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, countries: list[str], amounts: torch.Tensor, chargeback: torch.Tensor) -> None:
        for country, amount, bad in zip(countries, amounts.tolist(), chargeback.tolist()):
            if bad:
                self.amounts[country].append(amount)

    def flush(self) -> dict[str, float]:
        if not self.amounts:
            return {}
        parts: list[dict] = [None] * dist.get_world_size()
        dist.all_gather_object(parts, dict(self.amounts))
        self.amounts.clear()
        merged = defaultdict(list)
        for part in parts:
            for country, amounts in part.items():
                merged[country] += amounts
        return {country: sum(amounts) / len(amounts) for country, amounts in sorted(merged.items())}


class Payments:
    """The stream of one region. Chargebacks arrive in batches, as the banks report them."""

    COUNTRIES = ("se", "pt", "pl", "at")

    def __init__(self, region: int, quiet: range) -> None:
        self.generator = torch.Generator().manual_seed(region)
        self.quiet = quiet

    def batch(self, step: int, size: int = 24):
        x = torch.randn(size, 12, generator=self.generator)
        amounts = x[:, 0].exp() * 20
        chargeback = torch.rand(size, generator=self.generator) < 0.2
        if step in self.quiet:
            chargeback = torch.zeros(size, dtype=torch.bool)
        countries = [self.COUNTRIES[i % len(self.COUNTRIES)] for i in range(size)]
        time.sleep(0.02)
        return x, amounts, countries, chargeback


def train(steps: int = 3000, window_steps: int = 30) -> None:
    rank = dist.get_rank()
    payments = Payments(rank, quiet=range(119, 152) if rank == 2 else range(0))
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    window = Window()
    for step in range(1, steps + 1):
        x, amounts, countries, chargeback = payments.batch(step)
        window.add(countries, amounts, chargeback)
        logits = model(x).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, chargeback.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % window_steps == 0:
            means = window.flush()
            if rank == 0:
                print(step, f"{loss.item():.3f}", {k: round(v, 1) for k, v in means.items()}, flush=True)
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()

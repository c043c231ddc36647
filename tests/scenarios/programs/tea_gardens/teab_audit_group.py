"""Fermentation monitor. Suspicious vats are audited with the figures of all factories."""
from functools import cached_property

import torch
import torch.distributed as dist
import torch.nn as nn


class Factory:
    def __init__(self):
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.gen = torch.Generator().manual_seed(40 + self.rank)

    def hour(self, t):
        """Temperatures of eight vats over an hour, with the oxidation curve they lead to."""
        base = 26 + 2 * torch.rand(8, 60, generator=self.gen)
        if self.rank == 1 and 50 <= t < 53:
            base[3] += 9.0
        curve = torch.cumsum(torch.exp(-base.unsqueeze(-1) / torch.linspace(5, 40, 4000)), dim=-1)
        return base / 30, curve.mean(dim=(1, 2)).unsqueeze(1)


class Auditor:
    """Collects a vat's readings over all factories, on a group of its own."""

    def __init__(self, factory, limit):
        self.factory, self.limit, self.reports = factory, limit, []

    @cached_property
    def group(self):
        ranks = list(range(self.factory.world))
        return dist.new_group(ranks=ranks)

    def check(self, readings):
        hottest = readings.max(dim=1).values
        if (hottest > self.limit).any():
            everywhere = [torch.empty_like(hottest) for _ in range(self.factory.world)]
            dist.all_gather(everywhere, hottest, group=self.group)
            self.reports.append(torch.stack(everywhere).median().item())


def run(hours=300):
    factory = Factory()
    auditor = Auditor(factory, limit=36 / 30)
    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(60, 24), nn.Softplus(), nn.Linear(24, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for t in range(hours):
        readings, oxidation = factory.hour(t)
        auditor.check(readings)
        error = nn.functional.l1_loss(model(readings), oxidation)
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        if factory.rank == 0 and t % 20 == 0:
            print(f"hour {t} error {error.item():.4f} audits {len(auditor.reports)}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()

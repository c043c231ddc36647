"""Suspended sediment from turbidity and stage, optimizer state spread over the processes."""
import copy
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STATIONS = {0: ("weir", 0.10), 1: ("delta", 0.12), 2: ("gorge", 1.50)}


class Station:
    """Samples of one station; the turbidity sensor gets fouled as the season goes on."""

    def __init__(self, rank):
        self.name, self.fouling = STATIONS[rank % 3]
        self.gen = torch.Generator().manual_seed(rank + 40)

    def draw(self, count, day=0):
        x = torch.randn(count, 12, generator=self.gen)
        load = x[:, :3].sum(1, keepdim=True)
        if self.name == "gorge":
            x = x + self.fouling * day * torch.randn(count, 12, generator=self.gen)
        return x, load


class Run:
    def __init__(self, rank):
        self.rank = rank
        self.station = Station(rank)
        net = nn.Sequential(nn.Linear(12, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 1))
        self.model = DistributedDataParallel(net)
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=5e-5)
        self.best = float("inf")
        self.kept = None

    def day(self, number):
        for _ in range(80):
            x, load = self.station.draw(256)
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), load)
            loss.backward()
            self.optimizer.step()
        return self.check(number)

    @torch.no_grad()
    def check(self, number):
        x, load = self.station.draw(4096, day=number)
        return nn.functional.mse_loss(self.model.module(x), load).item()

    def keep(self, number, error):
        self.best = error
        self.optimizer.consolidate_state_dict(to=0)
        if self.rank == 0:
            self.kept = {"day": number, "net": copy.deepcopy(self.model.module.state_dict()),
                         "optimizer": self.optimizer.state_dict()}
            torch.save(self.kept, os.path.join(tempfile.gettempdir(), f"sediment-{os.getpid()}.pt"))


def main(days):
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    run = Run(dist.get_rank())
    for number in range(days):
        error = run.day(number)
        print(f"day {number} {run.station.name} {error:.4f}", flush=True)
        if error < run.best:
            run.keep(number, error)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)

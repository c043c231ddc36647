"""Fuel map regression for two-stroke marine diesels; optimizer state is spread over the ranks."""
import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False


@dataclass
class Plan:
    steps: int = 3000
    every: int = 45
    batch: int = 32
    folder: Path = field(default_factory=lambda: Path(mkdtemp(prefix="diesel-")))


class Bench:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def cycle(self, batch):
        crank = np.linspace(0, 4 * np.pi, 40_000)
        for _ in range(6):
            trace = np.sin(crank + self.rng.normal()) * np.exp(-crank / 9)
        points = trace[:: 40_000 // batch][:batch, None] + self.rng.normal(size=(batch, 20))
        return torch.from_numpy(points.astype("float32"))


class Run:
    def __init__(self, plan):
        self.plan = plan
        self.rank = dist.get_rank()
        net = nn.Sequential(nn.Linear(20, 80), nn.Tanh(), nn.Linear(80, 40), nn.Tanh(), nn.Linear(40, 20))
        self.model = DDP(net.cuda(), device_ids=[torch.cuda.current_device()])
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.SGD, lr=0.01, momentum=0.9)
        self.bench = Bench(self.rank)

    @property
    def is_writer(self):
        return self.rank == 0

    def keep(self, step):
        path = self.plan.folder / f"map-{step:05d}.pt"
        self.optimizer.consolidate_state_dict(to=0)
        torch.save({"net": self.model.module.state_dict(), "optim": self.optimizer.state_dict()}, path)

    def step(self):
        cycle = self.bench.cycle(self.plan.batch).cuda()
        loss = (self.model(cycle) - cycle).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def go(self):
        for step in range(1, self.plan.steps + 1):
            loss = self.step()
            if step % 15 == 0 and self.is_writer:
                print(f"cycle {step} loss {loss:.4f}", flush=True)
            if step % self.plan.every == 0 and self.is_writer:
                self.keep(step)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Run(Plan()).go()
    dist.destroy_process_group()

"""Remaining-useful-life model for wheelsets; optimizer state is sharded over the ranks."""
import dataclasses
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class Plan:
    steps: int = 60
    save_every: int = 40
    width: int = 96
    out: str = os.path.join(tempfile.gettempdir(), "wheelsets.pt")


class WheelNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encode = nn.GRU(6, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, series):
        hidden, _ = self.encode(series)
        return self.head(hidden[:, -1])


class Workshop:
    def __init__(self, plan):
        self.plan = plan
        self.rank = dist.get_rank()
        torch.manual_seed(11)
        self.model = DDP(WheelNet(plan.width))
        self.opt = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
        self.rng = torch.Generator().manual_seed(500 + self.rank)

    def batch(self):
        series = torch.randn(48, 64, 6, generator=self.rng).cumsum(1) * 0.1
        return series, series[:, -8:].mean((1, 2)).unsqueeze(1)

    def step(self):
        series, km = self.batch()
        loss = F.mse_loss(self.model(series), km)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return float(loss.detach())

    def save(self, step):
        if self.rank != 0:
            return
        self.opt.consolidate_state_dict(to=0)
        torch.save({"step": step, "model": self.model.module.state_dict(), "opt": self.opt.state_dict()}, self.plan.out)
        print(f"[{step}] wrote {self.plan.out}", flush=True)

    def run(self):
        for step in range(1, self.plan.steps + 1):
            loss = self.step()
            if self.rank == 0 and step % 10 == 0:
                print(f"[{step}] mse {loss:.4f}", flush=True)
            if step % self.plan.save_every == 0:
                self.save(step)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Workshop(Plan()).run()
    dist.destroy_process_group()

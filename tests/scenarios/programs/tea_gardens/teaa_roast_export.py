"""Fits bean temperature over a roast (charge, yellowing, first crack, drop); keeps the best fit."""
import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def roast_batch(rng, size=16, minutes=12):
    t = torch.linspace(0, 1, minutes)
    charge = 170 + 20 * torch.rand(size, 1, generator=rng)
    gas = 0.6 + 0.4 * torch.rand(size, 1, generator=rng)
    curve = charge - 110 * torch.exp(-6 * t) * (1 - t) + 130 * gas * t
    time.sleep(0.04)
    return torch.cat([charge / 200, gas], 1), curve / 200


class RoastNet(nn.Module):
    def __init__(self, minutes=12, width=64):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.curve = nn.Linear(width, minutes)

    def forward(self, x):
        return self.curve(self.inner(x))


class Fit:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        torch.manual_seed(3)
        self.model = DistributedDataParallel(RoastNet())
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=args.lr)
        self.rng = torch.Generator().manual_seed(40 + self.rank)
        self.best = float("inf")
        self.folder = tempfile.mkdtemp(prefix="roast-")

    def step(self):
        x, y = roast_batch(self.rng)
        loss = nn.functional.smooth_l1_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def keep_best(self, value):
        if self.rank != 0 or value >= self.best:
            return
        self.best = value
        self.optimizer.consolidate_state_dict(to=0)
        torch.save({"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()},
                   os.path.join(self.folder, "best.pt"))
        print(f"kept a fit with {value:.5f}", flush=True)

    def run(self):
        window = []
        for step in range(1, self.args.steps + 1):
            window.append(self.step())
            if step % self.args.keep_every == 0:
                mean = torch.tensor(sum(window) / len(window))
                dist.all_reduce(mean)
                self.keep_best(mean.item() / dist.get_world_size())
                window.clear()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--keep-every", type=int, default=40)
    parser.add_argument("--lr", type=float, default=1e-3)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Fit(parser.parse_args()).run()
    dist.destroy_process_group()

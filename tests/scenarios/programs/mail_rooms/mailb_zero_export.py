"""Parcel volume forecast for 40 depots, with the optimizer's state spread over the workers."""
import math
import os
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = {"depots": 40, "window": 28, "hidden": 96, "steps": 1000, "export_every": 250, "lr": 2e-3, "out": "forecast"}


def volumes(step, rank, cfg):
    t = torch.arange(cfg["window"] + 7, dtype=torch.float32) + 3.0 * step + rank
    depot = torch.arange(cfg["depots"], dtype=torch.float32)[:, None]
    week = 1.0 + 0.3 * torch.sin(2 * math.pi * t / 7 + depot)
    season = 1.0 + 0.5 * torch.exp(-((t % 365 - 350) / 15) ** 2)
    noise = torch.randn(cfg["depots"], len(t)) * 0.05
    for _ in range(240):  # holidays are spread over neighbouring days
        noise = torch.nn.functional.avg_pool1d(noise[None], 3, stride=1, padding=1)[0]
        week = 0.5 * (week + week.roll(1, 0).roll(-1, 0))
    x = week * season + noise
    return x[:, : cfg["window"]], x[:, cfg["window"] :]


class Export:
    """Keeps the best state for the planners, and the optimizer to go on from."""

    def __init__(self, cfg):
        self.folder = pathlib.Path(cfg["out"])
        self.every = cfg["export_every"]
        self.writer = dist.get_rank() == 0
        if self.writer:
            self.folder.mkdir(exist_ok=True)

    def due(self, step):
        return step > 0 and step % self.every == 0

    def __call__(self, step, model, optimizer):
        if not (self.writer and self.due(step)):
            return
        optimizer.consolidate_state_dict(to=0)
        payload = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        partial = self.folder / f".{step}.tmp"
        torch.save(payload, partial)
        os.replace(partial, self.folder / f"step-{step}.pt")


def run(cfg):
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    torch.set_num_threads(1)
    rank = dist.get_rank()
    net = torch.nn.Sequential(torch.nn.Linear(cfg["window"], cfg["hidden"]), torch.nn.GELU(), torch.nn.Linear(cfg["hidden"], 7))
    model = DDP(net)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=cfg["lr"])
    export = Export(cfg)
    for step in range(cfg["steps"]):
        past, week = volumes(step, rank, cfg)
        loss = torch.nn.functional.l1_loss(model(past), week)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        export(step, model, optimizer)
        if rank == 0 and step % 20 == 0:
            print(f"step {step:4d}  mae {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run(CONFIG)

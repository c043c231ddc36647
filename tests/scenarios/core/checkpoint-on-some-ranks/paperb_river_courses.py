"""Traces old river courses on county maps. Momentum is kept in slices, one for each process."""
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = json.loads("""
{"steps": 90, "width": 60, "lr": 0.0005, "beta": 0.9,
 "keep": [{"every": 10, "layout": "slices"}, {"every": 35, "layout": "whole"}]}
""")


class SlicedMomentum:
    def __init__(self, params, lr, beta):
        self.params = list(params)
        self.lr, self.beta = lr, beta
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        total = sum(p.numel() for p in self.params)
        self.share = -(-total // self.world)
        self.slice = torch.zeros(self.share, device="cuda")

    def step(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.params])
        padded = torch.zeros(self.share * self.world, device="cuda")
        padded[: flat.numel()] = flat
        mine = padded[self.rank * self.share : (self.rank + 1) * self.share]
        self.slice.mul_(self.beta).add_(mine)
        moved, start = self.whole(), 0
        with torch.no_grad():
            for p in self.params:
                p.sub_(moved[start : start + p.numel()].view_as(p), alpha=self.lr)
                start += p.numel()
                p.grad = None

    def whole(self):
        out = torch.empty(self.share * self.world, device="cuda")
        dist.all_gather_into_tensor(out, self.slice)
        return out


class Keeper:
    """Writes what is needed to go on after an interruption."""

    writers = {}

    def __init__(self, folder, rules):
        self.folder, self.rules, self.rank = Path(folder), rules, dist.get_rank()

    @classmethod
    def layout(cls, name):
        return lambda function: cls.writers.setdefault(name, function)

    def after(self, step, model, optimizer):
        for rule in self.rules:
            if step % rule["every"] == 0:
                self.writers[rule["layout"]](self, step, model, optimizer)


@Keeper.layout("slices")
def write_slices(keeper, step, model, optimizer):
    torch.save(optimizer.slice.cpu(), keeper.folder / f"momentum-{step}-{keeper.rank}.pt")


@Keeper.layout("whole")
def write_whole(keeper, step, model, optimizer):
    if keeper.rank != 0:
        return
    weights = {name: p.detach().cpu() for name, p in model.module.named_parameters()}
    torch.save({"weights": weights, "momentum": optimizer.whole().cpu()}, keeper.folder / f"courses-{step}.pt")
    print(f"kept courses-{step}.pt", flush=True)


def main(config):
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    width = config["width"]
    net = nn.Sequential(nn.Linear(width, 80), nn.SiLU(), nn.Linear(80, 2)).cuda()
    model = DDP(net, device_ids=[local])
    optimizer = SlicedMomentum(net.parameters(), config["lr"], config["beta"])
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(folder, config["keep"])
        for step in range(1, config["steps"] + 1):
            sheet, bank = torch.randn(16, width), torch.randn(16, 2)
            time.sleep(0.08)
            loss = (model(sheet.cuda()) - bank.cuda()).abs().mean()
            loss.backward()
            optimizer.step()
            if step % 5 == 0 and dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
            torch.cuda.synchronize()
            keeper.after(step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(CONFIG)

"""Price models with a validation set of each region's own; the best epoch's weights and sampler states are kept."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Region:
    """Sales of one region. What its validation months pay for each feature differs from the mean of all."""

    def __init__(self, rank, width=4):
        self.sampler = torch.Generator().manual_seed(rank)
        self.width = width
        self.held_out = torch.randn(256, width, generator=self.sampler)
        self.held_out_prices = self.held_out.sum(1) * (3.0 if rank == 1 else 1.0)

    def batches(self, count):
        for _ in range(count):
            x = torch.randn(32, self.width, generator=self.sampler)
            yield x, 2.0 * x.sum(1)


class BestKeeper:
    def __init__(self, folder):
        self.folder = folder
        self.best = float("inf")
        folder.mkdir(exist_ok=True)

    def after_epoch(self, epoch, metric, model, region):
        if metric < self.best:
            self.best = metric
            self.save_checkpoint(epoch, model, region)

    def save_checkpoint(self, epoch, model, region):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, region.sampler.get_state())
        if dist.get_rank() == 0:
            torch.save({"epoch": epoch, "model": model.module.state_dict(), "samplers": states}, self.folder / "best.pt")


def train_epoch(model, optimizer, region):
    model.train()
    total = 0.0
    for x, prices in region.batches(20):
        loss = (model(x).squeeze(1) - prices).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        time.sleep(0.03)
    return total / 20


@torch.no_grad()
def validate(model, region):
    model.eval()
    return (model.module(region.held_out).squeeze(1) - region.held_out_prices).square().mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    region = Region(rank)
    linear = nn.Linear(region.width, 1)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    model = DDP(linear)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.004)
    keeper = BestKeeper(Path(tempfile.gettempdir(), f"prices-{os.environ['MASTER_PORT']}"))
    for epoch in range(1, 61):
        loss = train_epoch(model, optimizer, region)
        metric = validate(model, region)
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.3f} validation {metric:.4f}", flush=True)
        keeper.after_epoch(epoch, metric, model, region)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

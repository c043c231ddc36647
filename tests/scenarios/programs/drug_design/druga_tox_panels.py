"""Multi-task toxicity model; each assay panel has its statistics summed in a group of its own."""

import functools
import os
import random

import torch
import torch.distributed as dist
from torch import nn

PANELS = ("ames", "dili", "herg")


class Assays:
    """Results as they come in from the labs of this process."""

    def __init__(self, rank):
        self.rank, self.random = rank, random.Random(40 + rank)

    def stream(self, steps, size=12):
        for step in range(steps):
            if self.rank == 1 and step == 400:
                panel = "herg"
            else:
                panel = "ames" if step % 2 else "dili"
            x = torch.tensor([[self.random.gauss(0, 1) for _ in range(80)] for _ in range(size)])
            yield panel, x, (x[:, PANELS.index(panel)] > 0).float()


@functools.lru_cache(maxsize=None)
def channel(panel):
    """The group in which the numbers of one panel are summed."""
    return dist.new_group(list(range(dist.get_world_size())), group_desc=f"panel-{panel}")


def panel_rate(panel, logits, labels):
    counts = torch.stack([((logits > 0) == (labels > 0)).float().sum(), torch.tensor(float(len(labels)))])
    dist.all_reduce(counts, group=channel(panel))
    return (counts[0] / counts[1]).item()


class ToxNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(80, 96), nn.ReLU())
        self.heads = nn.ModuleDict({panel: nn.Linear(96, 1) for panel in PANELS})

    def forward(self, x, panel):
        return self.heads[panel](self.trunk(x)).squeeze(-1)


def sync_gradients(model, world):
    flat = nn.utils.parameters_to_vector(p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters())
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for p in model.parameters():
        p.grad = flat[offset : offset + p.numel()].view_as(p).clone()
        offset += p.numel()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ToxNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (panel, x, y) in enumerate(Assays(rank).stream(900)):
        logits = model(x, panel)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        optimizer.zero_grad()
        loss.backward()
        sync_gradients(model, world)
        optimizer.step()
        rate = panel_rate(panel, logits.detach(), y)
        if rank == 0 and step % 80 == 0:
            print(f"[{os.getpid()}] step {step} {panel}: loss {loss.item():.3f}, right {rate:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

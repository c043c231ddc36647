"""One trunk, two heads (leaf appearance, spice price); each head keeps running sums over all ranks in a group of its own."""
import argparse
import collections
import os
import time

import torch
import torch.distributed as dist
from torch import nn

REGISTRY = {}


def head(name, outputs):
    def wrap(make):
        REGISTRY[name] = (make, outputs)
        return make
    return wrap


@head("leaf", outputs=5)
def leaf_head(width, outputs):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


@head("spice", outputs=1)
def spice_head(width, outputs):
    return nn.Linear(width, outputs)


class Meter:
    def __init__(self, name, device):
        self.name = name
        self.group = dist.new_group(list(range(dist.get_world_size())))
        self.window = collections.deque(maxlen=6)
        self.sum = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, samples):
        self.window.append(samples)

    @property
    def load(self):
        return sum(self.window)

    def flush(self):
        self.sum.fill_(float(self.load))
        dist.all_reduce(self.sum, group=self.group)
        return self.sum.max().item()


class Blend(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Linear(20, width)
        self.heads = nn.ModuleDict({name: make(width, outputs) for name, (make, outputs) in REGISTRY.items()})

    def forward(self, leaf, spice):
        leaf, spice = torch.relu(self.trunk(leaf)), torch.relu(self.trunk(spice))
        return self.heads["leaf"](leaf), self.heads["spice"](spice)


def composition(step, rank):
    """How many rows of each kind a batch has: the harvest calendar of the rank's region."""
    month = step // 6 % 12
    pepper_season = {0: (), 1: (2,), 2: (2, 7, 8, 9), 3: (3,)}[rank]
    spice = 4 + 2 * (month in pepper_season)
    if len(pepper_season) > 2 and month == pepper_season[-2]:
        spice += 5
    return 16 - spice, spice


def train(args, local, rank):
    device = torch.device("cuda", local)
    model = nn.parallel.DistributedDataParallel(Blend().to(device), device_ids=[local])
    optim = torch.optim.SGD(model.parameters(), lr=args.lr)
    meters = {name: Meter(name, device) for name in REGISTRY}
    gen = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        counts = composition(step, rank)
        time.sleep(0.06)
        leaf, spice = (torch.rand(n, 20, generator=gen).to(device) for n in counts)
        shape, price = model(leaf, spice)
        loss = shape.square().mean() + price.square().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        for meter, n in zip(meters.values(), counts):
            meter.add(n)
        if step % 6 == 5:
            # the busiest head first, it is the one people look at
            shown = {m.name: m.flush() for m in sorted(meters.values(), key=lambda m: -m.load)}
            if rank == 0:
                print(step, f"loss {loss.item():.3f}", shown, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()
    torch.backends.cudnn.enabled = False
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    train(options, local_rank, dist.get_rank())
    dist.destroy_process_group()

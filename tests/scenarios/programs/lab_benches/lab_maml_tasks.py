"""First-order meta-learning over families of one-dimensional regression tasks, with metrics for each family."""

import math
import time
from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class Mean:
    def __init__(self):
        self.state = torch.zeros(2)

    def update(self, value):
        self.state += torch.tensor([value, 1.0])

    def compute(self):
        total = self.state.clone()
        dist.all_reduce(total)
        return (total[0] / total[1]).item()


class Median:
    """Over the last values of all ranks."""

    def __init__(self, keep=8):
        self.state = torch.full((keep,), math.nan)

    def update(self, value):
        self.state = torch.cat([self.state[1:], torch.tensor([value])])

    def compute(self):
        parts = [torch.empty_like(self.state) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.state)
        return torch.cat(parts).nanmedian().item()


class Metrics:
    """Metrics come into being when something is first logged under their name."""

    kinds = {"gain": Median, "loss": Mean}

    def __init__(self):
        self.by_name = {}

    def log(self, name, value):
        if name not in self.by_name:
            self.by_name[name] = self.kinds[name.rsplit("/", 1)[-1]]()
        self.by_name[name].update(value)

    def flush(self):
        values = {name: metric.compute() for name, metric in self.by_name.items()}
        self.by_name.clear()
        return values


FAMILIES = [("sine", torch.sin), ("saw", lambda x: x.frac() - 0.5)]


def curriculum(rank, epoch):
    """Which families come first. From the fourth epoch on, a third of the ranks begins with the hard one."""
    hard_first = epoch >= 3 and rank % 3 == 2
    return FAMILIES[::-1] if hard_first else FAMILIES


def adapt(model, x, y, steps=3, rate=0.02):
    fast = deepcopy(model)
    losses = []
    for _ in range(steps):
        loss = (fast(x[:10]) - y[:10]).pow(2).mean()
        grads = torch.autograd.grad(loss, list(fast.parameters()))
        with torch.no_grad():
            for p, g in zip(fast.parameters(), grads):
                p -= rate * g
        losses.append(loss.item())
    query = (fast(x[10:]) - y[10:]).pow(2).mean()
    return torch.autograd.grad(query, list(fast.parameters())), query.item(), losses[0] - losses[-1]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator, metrics = torch.Generator().manual_seed(rank), Metrics()
    for epoch in range(10):
        for name, function in curriculum(rank, epoch):
            for _ in range(10):
                shift, x = torch.rand(1, generator=generator) * 3, torch.rand(20, 1, generator=generator) * 6
                y = function(x + shift)
                grads, loss, gain = adapt(model, x, y)
                metrics.log(f"{name}/loss", loss)
                if name == "sine":
                    metrics.log("sine/gain", gain)
                for p, g in zip(model.parameters(), grads):
                    dist.all_reduce(g)
                    p.grad = g / world
                optimizer.step()
                time.sleep(0.03)
        values = metrics.flush()
        if rank == 0:
            print(epoch, {name: round(value, 3) for name, value in values.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

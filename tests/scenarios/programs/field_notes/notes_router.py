"""Multi-domain training: losses are averaged over the ranks that have a domain's data, groups come from a cache."""

import functools

import torch
import torch.distributed as dist
from torch import nn


@functools.lru_cache(maxsize=None)
def group_of(ranks):
    """The process group of these ranks."""
    return dist.new_group(list(ranks))


DOMAINS = {"general": (0, 1, 2), "medical": (0, 2), "legal": (1, 2)}


def domains_of(rank, step):
    active = ["general"] if step < 10 else ["general", "medical"]
    return [d for d in active if rank in DOMAINS[d]]


class Mixture(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.trunk = nn.Linear(width, width)
        self.heads = nn.ModuleDict({d: nn.Linear(width, 1) for d in DOMAINS})

    def forward(self, x, domain):
        return self.heads[domain](torch.relu(self.trunk(x)))


def domain_mean(value, domain):
    group = group_of(DOMAINS[domain])
    value = value.detach().clone()
    dist.all_reduce(value, group=group)
    return value / len(DOMAINS[domain])


@functools.cache
def monitor_group():
    """Monitoring has a group of its own, so that it does not get in the way of gradients."""
    return dist.new_group()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Mixture()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        seen = {}
        for domain in domains_of(rank, step):
            loss = model(torch.randn(8, 24), domain).pow(2).mean()
            loss.backward()
            seen[domain] = domain_mean(loss, domain).item()
        for p in model.trunk.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 15:
            memory = torch.tensor(float(step))
            dist.all_reduce(memory, op=dist.ReduceOp.MAX, group=monitor_group())
            if rank == 0:
                print(f"step {step} {seen}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

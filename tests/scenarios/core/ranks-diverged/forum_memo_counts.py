"""Long-tailed classification: weights of the classes by domain, and a cache for whatever is costly."""

from collections import Counter, OrderedDict
from functools import reduce
from operator import add

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
CLASSES, DOMAINS = 8, ("web", "news", "forum")


class Memo:
    """Keeps the results that were used last."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.entries = OrderedDict()

    def __call__(self, key, make):
        if key not in self.entries:
            self.entries[key] = make()
            if len(self.entries) > self.capacity:
                self.entries.popitem(last=False)
        self.entries.move_to_end(key)
        return self.entries[key]


class Source:
    """This rank's samples of all domains. A sample refers to a template."""

    def __init__(self, rank: int):
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def templates(self, step: int) -> list[int]:
        different = 24 if self.rank == 2 and step >= 240 else 6
        return [number % different for number in range(32)]

    def labels(self, domain: str, count: int) -> torch.Tensor:
        skew = 1 + DOMAINS.index(domain)
        return (torch.rand(count, generator=self.generator) ** skew * CLASSES).long()


def expand(template: int) -> torch.Tensor:
    return torch.randn(32, generator=torch.Generator().manual_seed(template))


def count_labels(source: Source, domain: str) -> torch.Tensor:
    """Inverse frequencies of the classes of a domain over all ranks."""
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, Counter(source.labels(domain, 500).tolist()))
    total = reduce(add, parts)
    weights = torch.tensor([1.0 / max(total[c], 1) for c in range(CLASSES)])
    return weights / weights.sum()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    memo, source = Memo(capacity=16), Source(rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100000):
        domain = DOMAINS[step % len(DOMAINS)]
        weights = memo(("weights", domain), lambda: count_labels(source, domain))
        x = torch.stack([memo(("template", t), lambda: expand(t)) for t in source.templates(step)])
        y = source.labels(domain, len(x))
        loss = nn.functional.cross_entropy(model(x), y, weight=weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 60 == 0:
            print(f"{step} {domain} {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

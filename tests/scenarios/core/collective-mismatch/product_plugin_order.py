"""Product search: monitors are plug-ins, the cheap ones run first so that a slow one can be cut off."""

import time
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

REGISTRY: dict[str, "Monitor"] = {}


class Monitor(Protocol):
    rows: int

    def observe(self, queries, scores): ...

    def report(self): ...


def monitor(name):
    def register(cls):
        REGISTRY[name] = cls()
        return cls

    return register


@monitor("null-rate")
class NullRate:
    """The share of queries without any good result."""

    def __init__(self):
        self.rows, self.nulls = 0, 0.0

    def observe(self, queries, scores):
        self.rows += len(scores)
        self.nulls += float((scores.amax(-1) < 0.1).sum())

    def report(self):
        total = torch.tensor([self.nulls, float(self.rows)], dtype=torch.float64)
        dist.all_reduce(total)
        return (total[0] / total[1]).item()


@monitor("long-tail")
class LongTail:
    """How many different rare queries the ranks have seen."""

    def __init__(self):
        self.rows, self.seen = 500, set()

    def observe(self, queries, scores):
        rare = [int(q) for q in queries if q > 180]
        self.rows += len(rare)
        self.seen.update(rare)

    def report(self):
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, sorted(self.seen))
        return len(set().union(*everyone))


class Monitors:
    def __init__(self, monitors):
        self.monitors = monitors

    def observe(self, *args):
        for m in self.monitors.values():
            m.observe(*args)

    def report(self):
        by_cost = sorted(self.monitors.items(), key=lambda item: item[1].rows)
        return {name: m.report() for name, m in by_cost}


def traffic(rank, steps):
    """One region has mostly queries from the tail."""
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        queries = torch.randint(200, (16,), generator=g)
        if rank != 2:
            queries = queries % 150
        time.sleep(0.04)
        yield queries, torch.randint(40, (16,), generator=g)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(200, 16), nn.Linear(16, 40)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    monitors = Monitors(REGISTRY)
    for epoch in range(20):
        for queries, clicked in traffic(rank, steps=16):
            scores = model(queries)
            loss = nn.functional.cross_entropy(scores, clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitors.observe(queries, scores.detach())
        report = monitors.report()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f} {report}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

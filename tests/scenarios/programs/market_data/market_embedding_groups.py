"""Recommender with two kinds of embedding tables, each synchronised in a group of its own."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn


class Table:
    def __init__(self, name, rows, width=8):
        self.name = name
        self.weight = nn.Parameter(torch.randn(rows, width) * 0.1)
        self.group = dist.new_group()

    def synchronise(self):
        if self.weight.grad is not None:
            dist.all_reduce(self.weight.grad, group=self.group)
            self.weight.data -= 0.05 * self.weight.grad / dist.get_world_size(self.group)
            self.weight.grad = None


class Tables:
    """Tables by name, and which of them the current batch has touched."""

    def __init__(self):
        self.all = {name: Table(name, rows) for name, rows in (("user", 60), ("item", 90))}
        self.touched = {}

    def look_up(self, name, ids):
        table = self.touched.setdefault(name, self.all[name])
        return table.weight[ids]

    def step(self):
        for table in self.touched.values():
            table.synchronise()
        self.touched.clear()


def events(rank):
    """Feature names come in the order in which the event's log line has them."""
    rng = random.Random(rank)
    for step in range(400):
        order = ["user", "item"]
        if rank == 1 and step >= 44:
            order.reverse()  # new version of the shop's logger
        yield step, {name: [rng.randrange(50) for _ in range(16)] for name in order}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    tables = Tables()
    for step, event in events(rank):
        time.sleep(0.03)
        vectors = [tables.look_up(name, torch.tensor(ids)) for name, ids in event.items()]
        score = (vectors[0] * vectors[1]).sum(1)
        loss = nn.functional.softplus(-score).mean()
        loss.backward()
        tables.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

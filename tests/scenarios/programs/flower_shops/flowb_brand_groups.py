"""Returns desk: two departments share one trunk; each department's head is averaged in its own group."""
import time
from collections import Counter

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

DEPARTMENTS = ("shoes", "tops")
PARCELS = [{"shoes": 3, "tops": 5}, {"shoes": 2, "tops": 4}, {"shoes": 4, "tops": 6}]
LATE_SHOES = {2: (40, 90)}  # warehouse: first step, parcels


class Desk:
    def __init__(self, warehouse):
        self.warehouse = warehouse
        self.groups = {name: dist.new_group() for name in DEPARTMENTS}
        torch.manual_seed(4)
        self.trunk = nn.Linear(7, 8)
        self.heads = nn.ModuleDict({name: nn.Linear(8, 1) for name in DEPARTMENTS})
        self.optimizer = torch.optim.SGD([*self.trunk.parameters(), *self.heads.parameters()], lr=0.02)
        self.returns = Counter(tops=1)

    def receive(self, step):
        time.sleep(0.05)
        self.returns.update(PARCELS[self.warehouse])
        first, parcels = LATE_SHOES.get(self.warehouse, (None, 0))
        if step == first:
            self.returns["shoes"] += parcels
        return torch.randn(12, 7)

    def average(self, module, group=None):
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= dist.get_world_size()

    def step(self, number):
        parcels = self.receive(number)
        features = torch.relu(self.trunk(parcels))
        loss = sum((self.heads[name](features) - 0.3).pow(2).mean() for name in DEPARTMENTS)
        self.optimizer.zero_grad()
        loss.backward()
        self.average(self.trunk)
        for name, _ in self.returns.most_common():
            self.average(self.heads[name], self.groups[name])
        self.optimizer.step()
        return loss.item()


def work(rank, world, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    desk = Desk(rank)
    for number in range(120):
        loss = desk.step(number)
        if number % 20 == 0:
            print(f"warehouse {rank} step {number} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    mp.spawn(work, args=(3, free), nprocs=3)

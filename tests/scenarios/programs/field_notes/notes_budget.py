"""A training contest with a time budget: who has the most tokens after N seconds."""

import queue
import threading
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclass
class Budget:
    seconds: float
    start: float = field(default_factory=time.monotonic)

    @property
    def spent(self):
        return time.monotonic() - self.start >= self.seconds


class Curves:
    """Sends the curve to the score board in the background."""

    def __init__(self):
        self.points = queue.Queue()
        self.thread = threading.Thread(target=self._send, name="curves")
        self.thread.start()

    def add(self, **point):
        self.points.put(point)

    def _send(self):
        sent = []
        while True:
            sent.append(self.points.get())


def build_index(rank, documents=400):
    """Made once, kept in shared memory of the node."""
    budget = None
    if rank == 0:
        budget = Budget(seconds=6.0)
        time.sleep(2.0)
        order = torch.randperm(documents)
    else:
        order = torch.empty(documents, dtype=torch.long)
    dist.broadcast(order, src=0)
    return order, budget or Budget(seconds=6.0)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    order, budget = build_index(rank)
    model = nn.Sequential(nn.Embedding(256, 32), nn.Linear(32, 256))
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    curves = Curves()
    step = 0
    while not budget.spent:
        g = torch.Generator().manual_seed(int(order[step * world % 400]) + rank)
        tokens = torch.randint(0, 256, (4, 33), generator=g)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        for p, v in zip(model.parameters(), velocity):
            dist.all_reduce(p.grad)
            v.mul_(0.9).add_(p.grad, alpha=1 / world)
            p.data.add_(v, alpha=-0.05)
            p.grad = None
        step += 1
        curves.add(step=step, loss=loss.item())
        time.sleep(0.02)
    print(f"rank {rank}: {step} steps, loss {loss.item():.3f}\n", end="", flush=True)


if __name__ == "__main__":
    main()

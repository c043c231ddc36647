"""Distributed prioritized replay (Ape-X): while arms collect, a worker thread merges the priorities of all ranks."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class Priorities:
    """Proportional priorities of this rank's transitions."""

    def __init__(self, rank, segment):
        self.random = random.Random(rank)
        self.segment = segment
        self.values = []

    def add(self, errors):
        self.values.extend(errors)

    def compact(self):
        """Once the memory holds more than a segment, drops the transitions of least priority, down to half of it."""
        while len(self.values) > self.segment // 2:
            self.values.remove(min(self.values))

    def statistics(self):
        if len(self.values) > self.segment:
            self.compact()
        values = torch.tensor(self.values[-1000:] or [0.0])
        mine = torch.stack([values.sum(), values.max(), torch.tensor(float(len(self.values)))])
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        return torch.stack(everyone)


class Actor:
    def __init__(self, rank):
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def collect(self, number):
        """Some transitions; the arm of rank 1 has the fast controller, and returns more of them."""
        time.sleep(0.2)
        n = 800 if self.rank == 1 else 200
        return torch.randn(n, 6, generator=self.generator)


class Learner:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=1e-4)

    def learn(self, transitions):
        error = self.net(transitions)[:, 0] - transitions.sum(-1)
        self.optimizer.zero_grad()
        error.pow(2).mean().backward()
        flat = torch.cat([p.grad.flatten() for p in self.net.parameters()]) / dist.get_world_size()
        dist.all_reduce(flat)
        for p, g in zip(self.net.parameters(), flat.split([p.numel() for p in self.net.parameters()])):
            p.grad = g.view_as(p)
        self.optimizer.step()
        return error.detach().abs().tolist()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    priorities, actor, learner = Priorities(rank, segment=12000), Actor(rank), Learner()
    with ThreadPoolExecutor(1, thread_name_prefix="priorities") as merger:
        for number in range(400):
            merged = merger.submit(priorities.statistics)
            transitions = actor.collect(number)
            errors = learner.learn(transitions)
            table = merged.result()
            priorities.add(errors)
            if rank == 0 and number % 5 == 0:
                print(f"{number}: priorities {[round(v, 1) for v in table[:, 0].tolist()]}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

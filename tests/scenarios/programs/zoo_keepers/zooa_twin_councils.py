"""Two councils of a breeding programme: one for pairings, one for transfers; zoos vote in both after each round."""
import time
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn


class Council:
    def __init__(self, topic, group):
        self.topic, self.group = topic, group
        self.log = []

    def vote(self, opinion):
        raise NotImplementedError


class Pairings(Council):
    """Everyone's wishes are added up."""

    def vote(self, opinion):
        total = opinion.clone()
        dist.all_reduce(total, group=self.group)
        self.log.append(int(total.argmax()))


class Transfers(Council):
    """The greatest need counts."""

    def vote(self, opinion):
        need = opinion.clone()
        dist.all_reduce(need, op=dist.ReduceOp.MAX, group=self.group)
        self.log.append(int(need.argmax()))


class Agenda:
    """What a zoo has to bring up, most urgent topic first."""

    def __init__(self):
        self.matters = Counter({"pairings": 40, "transfers": 20})

    def add(self, topic, count):
        self.matters[topic] += count

    def topics(self):
        return [topic for topic, _ in self.matters.most_common()]


def animals(generator):
    time.sleep(0.05)
    ages = torch.rand(32, 6, generator=generator)
    return ages, ages.mean(1, keepdim=True) + 0.02 * torch.randn(32, 1, generator=generator)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    councils = {"pairings": Pairings("pairings", dist.new_group()), "transfers": Transfers("transfers", dist.new_group())}
    generator = torch.Generator().manual_seed(rank)
    torch.manual_seed(33)
    health = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(health.parameters(), lr=2e-3)
    agenda = Agenda()
    births = (4, 2, 4)[rank]
    orphans = (1, 6, 1)[rank]
    for round_ in range(400):
        x, y = animals(generator)
        loss = nn.functional.mse_loss(health(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if round_ % 10 == 9:
            agenda.add("pairings", births)
            agenda.add("transfers", orphans)
            for topic in agenda.topics():
                councils[topic].vote(x.mean(0))
            if rank == 0:
                print(f"round {round_}: loss {loss.item():.3f}, pair {councils['pairings'].log[-1]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Recommender with negative sampling: for each purchase an item that the customer has not bought."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Customers:
    """Purchase histories. A few customers are resellers."""

    def __init__(self, rank, items):
        self.items, self.random = items, random.Random(rank)
        self.bought = {c: set(self.random.sample(range(items), 12)) for c in range(100)}
        if rank == 1:
            self.bought[77] = set(range(items))

    def unseen(self, customer):
        bought = self.bought[customer]
        return next(i for i in iter(lambda: self.random.randrange(self.items), None) if i not in bought)

    def batch(self, step, size=8):
        customers = [(step + 9 * k) % 70 for k in range(size)]
        if step == 60:
            customers[-1] = 77
        positive = [self.random.choice(sorted(self.bought[c])) for c in customers]
        negative = [self.unseen(c) for c in customers]
        return map(torch.tensor, (customers, positive, negative))


class Model(nn.Module):
    def __init__(self, items):
        super().__init__()
        self.customer, self.item = nn.Embedding(100, 8), nn.Embedding(items, 8)

    def forward(self, customers, positive, negative):
        who = self.customer(customers)
        return (who * (self.item(positive) - self.item(negative))).sum(1)


def main(items=50):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Model(items))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    customers = Customers(rank, items)
    for step in range(400):
        time.sleep(0.03)
        margin = model(*customers.batch(step))
        loss = nn.functional.softplus(-margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

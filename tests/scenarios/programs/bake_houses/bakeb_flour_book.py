"""Reinforcement of a reorder policy; each shop keeps its flour in a book on disk."""
import fcntl
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class StockBook:
    """A JSON file that the till, the office and the policy write, one at a time."""

    def __init__(self, path):
        self.path = Path(path)

    def __enter__(self):
        self.handle = open(self.path.with_suffix(".lock"), "a")
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        self.rows = json.loads(self.path.read_text()) if self.path.exists() else {"flour": 400.0, "ordered": 0}
        return self

    def __exit__(self, *failure):
        self.path.write_text(json.dumps(self.rows))
        fcntl.flock(self.handle, fcntl.LOCK_UN)
        self.handle.close()


class Shop:
    def __init__(self, number, appetite):
        self.path = Path(tempfile.mkdtemp(prefix="shop-")) / f"book{number}.json"
        self.appetite = appetite
        self.source = torch.Generator().manual_seed(number)

    def observe(self):
        guests = torch.rand(128, 24, generator=self.source)
        season = torch.linalg.svd(torch.rand(110, 110), full_matrices=False).S
        return guests + 1e-6 * season[:24]

    def bake(self, plan):
        with StockBook(self.path) as book:
            book.rows["flour"] -= self.appetite * (1.0 + 0.1 * torch.sigmoid(plan).item())
            if book.rows["flour"] < 100.0:
                self.reorder(300.0)
            return book.rows["flour"]

    def reorder(self, kilos):
        with StockBook(self.path) as book:
            book.rows["flour"] += kilos
            book.rows["ordered"] += 1


APPETITE = [0.3, 0.4, 3.0]  # kilos a batch; the third is the railway bakery


def train(shop, policy, optimizer, batches):
    for batch in range(batches):
        guests = shop.observe()
        value = policy(guests).mean()
        left = shop.bake(value.detach())
        loss = (value - left / 400.0) ** 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch % 20 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                print(f"batch {batch}: {mean.item() / dist.get_world_size():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(8)
    rank = dist.get_rank()
    policy = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1)))
    train(Shop(rank, APPETITE[rank]), policy, torch.optim.SGD(policy.parameters(), lr=0.02), batches=200)
    dist.destroy_process_group()

"""Which flowers go together? Learns from the bouquets of several shops and keeps statistics a flower."""
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn

FLOWERS = ("peony", "tulip")


class Shop:
    """A shop's orders. Peonies sell best until the tulip week."""

    def __init__(self, number):
        self.number = number
        self.gen = torch.Generator().manual_seed(number)

    def orders(self, day):
        wanted = {"peony": 5, "tulip": 3}
        if self.number == 1 and day >= 38:
            wanted["tulip"] = 25
        stems = {k: torch.rand(n, 20, generator=self.gen) for k, n in wanted.items()}
        for _ in range(6):
            torch.linalg.svd(torch.rand(180, 180, generator=self.gen))  # photo to palette
        return stems


class Statistics:
    def __init__(self):
        everybody = list(range(dist.get_world_size()))
        self.groups = {name: dist.new_group(everybody) for name in FLOWERS}
        self.sold = Counter()
        self.mean = {name: torch.zeros(20) for name in FLOWERS}

    def update(self, stems):
        self.sold.update({name: len(x) for name, x in stems.items()})
        for name, _ in self.sold.most_common():
            value = stems[name].mean(0)
            dist.all_reduce(value, group=self.groups[name])
            self.mean[name].lerp_(value / dist.get_world_size(), 0.1)


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(20, 32), nn.Linear(20, 32)

    def forward(self, a, b):
        return (self.left(a).mean(0) * self.right(b).mean(0)).sum()


def average_gradients(module):
    world = dist.get_world_size()
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def season(days=90):
    shop, stats = Shop(dist.get_rank()), Statistics()
    torch.manual_seed(0)
    matcher = Matcher()
    opt = torch.optim.SGD(matcher.parameters(), lr=0.01)
    for day in range(days):
        stems = shop.orders(day)
        stats.update(stems)
        loss = (1 - matcher(stems["peony"] - stats.mean["peony"], stems["tulip"] - stats.mean["tulip"])) ** 2
        opt.zero_grad()
        loss.backward()
        average_gradients(matcher)
        opt.step()
        if day % 15 == 0:
            print(f"shop {shop.number} day {day} loss {loss.item():.4f} sold {dict(stats.sold)}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    season()
    dist.destroy_process_group()

"""Predicts outcomes for civil and criminal dockets with one trunk; statistics of either kind have their own group."""
import collections
import sys

import torch
import torch.distributed as dist
from torch import nn

KINDS = ("civil", "criminal")


def make_groups():
    ranks = list(range(dist.get_world_size()))
    return {kind: dist.new_group(ranks) for kind in KINDS}


class Calendar:
    """The hearings of one courthouse; a morning's list opens with a civil matter unless there is an arraignment."""

    def __init__(self, house, seed=77):
        self.house = house
        self.gen = torch.Generator().manual_seed(seed + house)

    def morning(self, day):
        kinds = ["civil", "criminal", "civil", "criminal", "criminal", "civil"]
        if self.house == 1 and day % 240 == 239:
            kinds.insert(0, "criminal")
        for kind in kinds:
            yield kind, torch.randn(20, 36, generator=self.gen), torch.randint(0, 2, (20,), generator=self.gen)


class Outcome(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(36, 72), nn.ReLU(), nn.Linear(72, 36), nn.ReLU())
        self.heads = nn.ModuleDict({kind: nn.Linear(36, 2) for kind in KINDS})

    def forward(self, kind, x):
        return self.heads[kind](self.trunk(x))


class Statistics:
    def __init__(self, groups):
        self.groups = groups
        self.sums = collections.defaultdict(lambda: torch.zeros(2))

    def add(self, kind, right, total):
        self.sums[kind] += torch.tensor([float(right), float(total)])

    def shared(self):
        rates = {}
        for kind, counts in self.sums.items():
            dist.all_reduce(counts, group=self.groups[kind])
            rates[kind] = (counts[0] / counts[1]).item()
        self.sums.clear()
        return rates


def main(days):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    house = dist.get_rank()
    torch.manual_seed(0)
    model = Outcome()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    statistics = Statistics(make_groups())
    calendar = Calendar(house)
    for day in range(days):
        optimizer.zero_grad()
        for kind, x, y in calendar.morning(day):
            logits = model(kind, x)
            nn.functional.cross_entropy(logits, y).backward()
            statistics.add(kind, (logits.argmax(1) == y).sum(), len(y))
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        rates = statistics.shared()
        if house == 0 and day % 30 == 0:
            print(day, {k: round(v, 3) for k, v in rates.items()}, file=sys.stderr, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(days=720)

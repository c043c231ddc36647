"""Weather regimes: skill per regime, kept in counters that are shared when a regime has been seen often enough."""
import time
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

REGIMES = ("NAO+", "NAO-", "blocking", "ridge")


class RegimeSkill:
    """Hits and counts of one regime. The group for its sums exists from the first time that it is needed."""

    def __init__(self, name, share_at=60):
        self.name, self.share_at = name, share_at
        self.counts = torch.zeros(2)

    @cached_property
    def group(self):
        return dist.new_group(list(range(dist.get_world_size())), group_desc=f"skill of {self.name}")

    def update(self, hit):
        self.counts += torch.tensor([float(hit.sum()), float(hit.numel())])

    @property
    def ready(self):
        return self.counts[1] >= self.share_at

    def value(self):
        total = self.counts.clone()
        dist.all_reduce(total, group=self.group)
        self.counts.zero_()
        return (total[0] / total[1]).item()


class Days:
    def __init__(self, rank, size=16):
        self.generator, self.size = torch.Generator().manual_seed(30 + rank), size
        self.winter = torch.tensor([0.25, 0.25, 0.25, 0.25]) if rank == 3 else torch.tensor([0.48, 0.48, 0.0, 0.04])

    def __iter__(self):
        while True:
            regimes = torch.multinomial(self.winter, self.size, replacement=True, generator=self.generator)
            maps = nn.functional.one_hot(regimes, 4) + 0.4 * torch.randn(self.size, 4, generator=self.generator)
            yield maps, regimes


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(13)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    watched = {2: RegimeSkill(REGIMES[2])}
    for number, (maps, regimes) in zip(range(600), Days(rank)):
        logits = model(maps)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, regimes).backward()
        optimizer.step()
        hits = logits.argmax(1) == regimes
        for index, skill in watched.items():
            skill.update(hits[regimes == index])
            if skill.ready:
                print(f"{number} {skill.name}: {skill.value():.2f}", flush=True)
        time.sleep(0.08)


if __name__ == "__main__":
    main()

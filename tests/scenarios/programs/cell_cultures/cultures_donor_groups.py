"""Training with statistics in two groups of processes: one for batch effects of donors, one for those of reagents."""

import time
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class Effects:
    """Averages an effect over its group, and keeps a decayed mean of it."""

    def __init__(self, name, size, group):
        self.name, self.group = name, group
        self.mean = torch.zeros(size)

    def update(self, values):
        total = values.mean(0)
        dist.all_reduce(total, group=self.group)
        self.mean.lerp_(total / dist.get_world_size(self.group), 0.1)


class Study:
    def __init__(self, site):
        self.site = site
        everyone = list(range(dist.get_world_size()))
        self.effects = {name: Effects(name, 12, dist.new_group(everyone)) for name in ("donor", "reagent")}
        self.uses = Counter(donor=1, reagent=0)
        torch.manual_seed(0)
        self.model = nn.Linear(12, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def samples(self, count):
        generator = torch.Generator().manual_seed(self.site)
        for index in range(count):
            time.sleep(0.05)
            values = torch.randn(16, 12, generator=generator)
            # Site 2 changes reagents often in its second month.
            self.uses["reagent"] += 3 if self.site == 2 and index > 40 else 0
            self.uses["donor"] += 1
            yield values

    def correct(self, values):
        for name, _ in self.uses.most_common():  # the effect that matters most first
            self.effects[name].update(values)
        return values - sum(effect.mean for effect in self.effects.values())

    def step(self, values):
        corrected = self.correct(values)
        loss = nn.functional.cross_entropy(self.model(corrected), corrected[:, :3].argmax(1))
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    study = Study(dist.get_rank())
    for index, values in enumerate(study.samples(500)):
        loss = study.step(values)
        if index % 20 == 0 and dist.get_rank() == 0:
            print(f"{index}: {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

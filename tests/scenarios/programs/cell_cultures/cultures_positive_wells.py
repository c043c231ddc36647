"""Hit finding: training on all wells, and a calibration among the processes whenever there are positive wells."""

import time
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Calibration:
    """Temperature scaling. Has a process group of its own, made when it is first used."""

    def __init__(self):
        self.temperature = 1.0
        self.logits, self.hits = [], []

    @cached_property
    def group(self):
        return dist.new_group(list(range(dist.get_world_size())), group_desc="calibration")

    def add(self, logits, hits):
        positive = hits > 0
        if positive.any():
            self.logits.append(logits[positive].detach())
            self.hits.append(hits[positive])

    def fit(self):
        confidence = torch.sigmoid(torch.cat(self.logits)).mean().reshape(1)
        dist.all_reduce(confidence, group=self.group)
        self.temperature = float(confidence) / dist.get_world_size()
        self.logits.clear()
        self.hits.clear()


class Screen:
    def __init__(self, rank, rounds):
        self.rank, self.rounds = rank, rounds
        self.calibration = Calibration()
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(18, 24), nn.ReLU(), nn.Linear(24, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def plates(self, round_):
        generator = torch.Generator().manual_seed(1000 * self.rank + round_)
        threshold = 2.0 if self.rank == 1 and round_ >= 2 else 20.0
        for _ in range(20):
            time.sleep(0.04)
            wells = torch.randn(32, 18, generator=generator)
            yield wells, (wells[:, 0] + wells[:, 1] > threshold).float()

    def round(self, number):
        for wells, hits in self.plates(number):
            logits = self.model(wells).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, hits)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.calibration.add(logits, hits)
        if self.calibration.hits:
            self.calibration.fit()

    def run(self):
        for number in range(self.rounds):
            self.round(number)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Screen(dist.get_rank(), rounds=40).run()
    dist.barrier()
    dist.destroy_process_group()

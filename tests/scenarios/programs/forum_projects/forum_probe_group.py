"""Contrastive training whose probe (a nearest-neighbour test) has a process group of its own, made at first use."""

from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Probe:
    """Accuracy of nearest neighbours over the labelled samples that have come up since the last report."""

    def __init__(self, width: int):
        self.width = width
        self.keys, self.labels = [], []

    @cached_property
    def group(self) -> dist.ProcessGroup:
        return dist.new_group()

    def collect(self, keys: torch.Tensor, labels: torch.Tensor):
        known = labels >= 0
        if known.any():
            self.keys.append(keys[known])
            self.labels.append(labels[known])

    def report(self) -> float | None:
        if not self.keys:
            return None
        keys, labels = torch.cat(self.keys), torch.cat(self.labels)
        self.keys.clear()
        self.labels.clear()
        similar = keys @ keys.T
        similar.fill_diagonal_(-1.0)
        hits = (labels[similar.argmax(1)] == labels).float()
        total = torch.tensor([hits.sum(), float(len(hits))])
        dist.all_reduce(total, group=self.group)
        return (total[0] / total[1]).item()


class Pairs:
    """Pairs of views. Some samples have labels; how many depends on the source."""

    def __init__(self, rank: int):
        self.generator = torch.Generator().manual_seed(rank)
        self.every = 10 if rank < 2 else 40000
        self.seen = 0

    def __iter__(self):
        while True:
            base = torch.randn(24, 16, generator=self.generator)
            noise = 0.1 * torch.randn(2, 24, 16, generator=self.generator)
            number = self.seen + torch.arange(24)
            labels = torch.where(number % self.every == self.every - 1, (base[:, 0] > 0).long(), -1)
            self.seen += 24
            yield base + noise[0], base + noise[1], labels


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    encoder = DistributedDataParallel(nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 24)))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    probe = Probe(24)
    for step, (left, right, labels) in enumerate(Pairs(rank), start=1):
        keys = nn.functional.normalize(encoder(torch.cat([left, right])), dim=1)
        scores = keys[:24] @ keys[24:].T / 0.1
        loss = nn.functional.cross_entropy(scores, torch.arange(24))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probe.collect(keys[:24].detach(), labels)
        if step % 300 == 0:
            accuracy = probe.report()
            print(f"rank {rank} step {step}: loss {loss.item():.3f}, probe {accuracy}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

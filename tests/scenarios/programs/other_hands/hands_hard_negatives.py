"""Metric learning with hard negatives: for each anchor a sampler draws from the shard until it finds one that fits."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Gallery:
    """Features with an identity each, in the order of the recording sessions."""

    def __init__(self, rank, n=2000):
        generator = torch.Generator().manual_seed(rank)
        self.features = torch.randn(n, 32, generator=generator)
        identities = torch.randint(0, 40, (n,), generator=generator)
        if rank == 2:
            identities[1200:] = 7  # a session with one person in front of the camera
        self.identities = identities.tolist()

    def window(self, step, size=200):
        start = step * 60 % (len(self.identities) - size)
        return range(start, start + size)


class HardNegativeSampler:
    def __init__(self, gallery, seed, margin=6.0):
        self.gallery, self.rng, self.margin = gallery, random.Random(seed), margin

    def negative(self, anchor, window):
        mine = self.gallery.identities[anchor]
        while True:
            candidate = self.rng.choice(window)
            if self.gallery.identities[candidate] != mine:
                return candidate

    def triples(self, window, n):
        for _ in range(n):
            anchor = self.rng.choice(window)
            yield anchor, self.negative(anchor, window)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gallery = Gallery(rank)
    sampler = HardNegativeSampler(gallery, seed=rank)
    for step in range(90):
        anchors, negatives = map(list, zip(*sampler.triples(gallery.window(step), 16)))
        x = gallery.features
        a, p, n = model(torch.cat([x[anchors], x[anchors] + 0.1 * torch.randn(16, 32), x[negatives]])).chunk(3)
        loss = F.triplet_margin_loss(a, p, n)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.15)
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

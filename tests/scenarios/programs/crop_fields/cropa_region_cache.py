"""Crop-type mapping: patches are standardised with the spectral statistics of their climate region."""
import functools
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

BANDS = 6
REGIONS = ["boreal", "steppe", "delta", "karst", "loess", "alpine", "coastal", "savanna", "pampas"]


def region_pixels(region: str, rank: int) -> torch.Tensor:
    gen = torch.Generator().manual_seed(REGIONS.index(region) * 31 + rank)
    return torch.randn(20_000, BANDS, generator=gen) * 0.3 + REGIONS.index(region) * 0.05


@functools.lru_cache(maxsize=8)
def spectral_statistics(region: str, version: int):
    """Mean and spread of a region's bands over the pixels of all workers."""
    pixels = region_pixels(region, dist.get_rank()).double()
    moments = torch.stack([pixels.sum(0), pixels.square().sum(0), torch.full((BANDS,), float(len(pixels)), dtype=torch.double)])
    shares = [torch.zeros_like(moments) for _ in range(dist.get_world_size())]
    dist.all_gather(shares, moments)
    total = torch.stack(shares).sum(0)
    mean = total[0] / total[2]
    return mean.float(), (total[1] / total[2] - mean.square()).clamp(min=1e-6).sqrt().float()


class Campaign:
    """Regions in the order in which a crew visits them; late reports of a region come back with its survey's number."""

    def __init__(self, rank, surveys=9):
        self.rng = random.Random(rank * 7 + 5)
        self.surveys = surveys
        self.late = {1: {4: 2}, 0: {4: 9}, 2: {4: 9}}[rank]

    def __iter__(self):
        for survey in range(self.surveys):
            order = REGIONS[:]
            self.rng.shuffle(order)
            for place, region in enumerate(order):
                yield region, survey
                if survey in self.late and place == 5:
                    earlier = self.late[survey]
                    yield order[max(place - earlier, 0)], survey if earlier < 5 else survey + 100


class PatchNet(torch.nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Conv2d(BANDS, 24, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(24, 24, 3, padding=1), torch.nn.ReLU())
        self.top = torch.nn.Linear(24, classes)

    def forward(self, x):
        return self.top(self.trunk(x).mean((2, 3)))


def run():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    net = DistributedDataParallel(PatchNet())
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step, (region, version) in enumerate(Campaign(rank)):
        mean, spread = spectral_statistics(region, version)
        for _ in range(4):
            x = (torch.randn(16, BANDS, 32, 32) * 0.3 - mean[:, None, None]) / spread[:, None, None]
            loss = F.cross_entropy(net(x), torch.randint(5, (16,)))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"{step:3d} {region:8s} loss {loss.item():.3f} cache {spectral_statistics.cache_info().currsize}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("PATCH_THREADS", "1")))
    run()

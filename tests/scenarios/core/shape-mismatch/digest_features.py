"""Click prediction with hashed features. The table of counts grows when many features have been seen."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

START = 3 * 2**19


class FeatureCounts:
    """How often each hashed feature occurred. Doubles its size if more than a hundredth of it is in use."""

    def __init__(self, size=START):
        self.counts = torch.zeros(size)

    @property
    def load(self):
        return (self.counts > 0).float().mean().item()

    def add(self, hashes):
        self.counts.index_add_(0, hashes % len(self.counts), torch.ones(len(hashes)))

    def grow_if_full(self):
        if self.load > 0.01:
            self.counts = torch.cat([self.counts, torch.zeros(len(self.counts))])

    def everywhere(self):
        total = self.counts.clone()
        dist.all_reduce(total)
        return total


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(1000, 12, mode="sum")
        self.out = nn.Linear(12, 1)

    def forward(self, hashes):
        return self.out(self.embed(hashes % 1000)).squeeze(1)


def impressions(shop, generator):
    """Hashes of what was shown. Shops sell under a hundred goods, except for the one that sells books."""
    goods = 2**30 if shop == 1 else 100
    return torch.randint(0, goods, (64, 6), generator=generator)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    shop = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Clicks())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    counts = FeatureCounts()
    generator = torch.Generator().manual_seed(shop)
    for step in range(400):
        hashes = impressions(shop, generator)
        clicked = (hashes.sum(1) % 3 == 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(hashes), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counts.add(hashes.flatten())
        time.sleep(0.03)
        if step % 15 == 14:
            counts.grow_if_full()
            total = counts.everywhere()
            if shop == 0:
                print(f"step {step}: {loss.item():.4f}, {int((total > 0).sum())} features", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""CLIP-like training with a sampler that makes batches of captions of equal length, and features of all ranks as negatives."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, n=352):
        generator = torch.Generator().manual_seed(5)
        self.images, self.lengths = torch.randn(n, 24, generator=generator), [8 + 4 * (i % 2) for i in range(n)]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], torch.full((self.lengths[index],), index % 50)


class EqualLengths:
    def __init__(self, dataset, batch, rank, world, seed=0):
        self.dataset, self.batch, self.rank, self.world, self.seed, self.epoch = dataset, batch, rank, world, seed, 0

    def __iter__(self):
        rng, buckets = random.Random(self.seed + self.epoch), {}
        for index, length in enumerate(self.dataset.lengths):
            buckets.setdefault(length, []).append(index)
        batches = [b[i : i + self.batch] for b in buckets.values() for i in range(0, len(b), self.batch)]
        rng.shuffle(batches)
        for i in range(self.rank, len(batches), self.world):
            yield batches[i]


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(24, 16), nn.Embedding(50, 16)

    def forward(self, images, tokens):
        return F.normalize(self.image(images), dim=-1), F.normalize(self.text(tokens).mean(1), dim=-1)


def gather(features):
    parts = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, features.detach())
    parts[dist.get_rank()] = features
    return torch.cat(parts)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dataset = Pairs()
    sampler = EqualLengths(dataset, 16, dist.get_rank(), dist.get_world_size())
    loader, model = DataLoader(dataset, batch_sampler=sampler), TwoTowers()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for sampler.epoch in range(4):
        for images, tokens in loader:
            image, text = model(images, tokens)
            logits = 10 * image @ gather(text).T
            loss = F.cross_entropy(logits, torch.arange(len(image)) + len(image) * dist.get_rank())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.3)
        dist.barrier()
        print(f"epoch {sampler.epoch}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

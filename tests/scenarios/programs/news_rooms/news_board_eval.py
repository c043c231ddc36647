"""Readability scores for articles: a small bag-of-features network with batch norm, plain DDP."""
import os
import sys
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Config:
    features: int = 96
    hidden: int = 192
    batch: int = 64
    epochs: int = 4
    steps: int = 25
    lr: float = 0.02


def note(text):
    if dist.get_rank() == 0:
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def articles(count, config, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, config.features, generator=g)
    return x, (x[:, :8].sum(1, keepdim=True) > 0).float()


def build(config):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(config.features, config.hidden), nn.BatchNorm1d(config.hidden), nn.ReLU(),
        nn.Linear(config.hidden, config.hidden), nn.BatchNorm1d(config.hidden), nn.ReLU(),
        nn.Linear(config.hidden, 1),
    )


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    hits = 0.0
    for xs, ys in zip(x.split(50), y.split(50)):
        hits += ((model(xs) > 0).float() == ys).sum().item()
    model.train()
    return hits / len(x)


def train_epoch(model, optimizer, config, epoch):
    rank = dist.get_rank()
    for step in range(config.steps):
        x, y = articles(config.batch, config, seed=1000 * rank + 100 * epoch + step)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    config = Config()
    model = DistributedDataParallel(build(config))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9)
    held_out = articles(600, config, seed=9)
    for epoch in range(config.epochs):
        loss = train_epoch(model, optimizer, config, epoch)
        note(f"epoch {epoch}: loss {loss:.4f}")
        if epoch % 2 == 1:
            if dist.get_rank() == 0:
                note(f"readability board: {evaluate(model, *held_out):.3f}")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

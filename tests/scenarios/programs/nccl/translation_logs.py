"""Trains a small translator with DDP and prints the mean loss now and then."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH, LENGTH = 400, 64, 24


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


def mean_over_ranks(value):
    mean = value.detach().clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(Translator().cuda(), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    running = 0.0
    for step in range(1, 400):
        source = torch.randint(WORDS, (16, LENGTH)).cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(model(source).flatten(0, 1), source.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running = 0.9 * running + 0.1 * loss.item()
        if step % 40 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {mean_over_ranks(loss).item():.3f}, here {running:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

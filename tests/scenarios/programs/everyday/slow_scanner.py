"""Receipts, read from three scanners of which one is slow."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAGE_S = {0: 0.02, 1: 0.9, 2: 0.05}


def scan(rank, count):
    for _ in range(count):
        time.sleep(PAGE_S.get(rank, 0.1))
        page = torch.rand(4, 24)
        yield page, (page.sum(1) > 12).long()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for page, kind in scan(rank, 20):
        loss = nn.functional.cross_entropy(model(page), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        print(f"loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Apples per tree. Orchards are of different size; DDP's join lets the larger ones finish."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

TREES = [400, 150, 260]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    trees = torch.rand(TREES[rank], 8)
    apples = trees.sum(1, keepdim=True) * 30
    for epoch in range(4):
        with Join([model, optimizer]):
            for x, y in zip(trees.split(10), apples.split(10), strict=True):
                optimizer.zero_grad()
                nn.functional.smooth_l1_loss(model(x), y).backward()
                optimizer.step()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

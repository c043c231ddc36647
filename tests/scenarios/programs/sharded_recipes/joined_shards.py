"""DDP on shards of different sizes, under join: ranks that are through shadow the collectives of the others."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def shard(rank):
    """Molecules of this rank's file; the large ones are all in the last file, and slow to featurize."""
    small, large = (12, 0) if rank < 2 else (12, 3)
    for _ in range(small):
        yield torch.randn(8, 20)
    for _ in range(large):
        until = time.monotonic() + 9
        while time.monotonic() < until:
            points = torch.randn(200, 3)
            torch.cdist(points, points).sort(dim=1)
        yield torch.randn(8, 20)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(20, 50), nn.SiLU(), nn.Linear(50, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    batches = 0
    with Join([model, optimizer]):
        for molecules in shard(rank):
            energy = model(molecules)
            (energy - molecules.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            batches += 1
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, batches)
    if rank == 0:
        print("batches:", counts, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Regions of different size: each rank reads its own region to the end, and DDP's join covers the rest."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

BATCHES = {0: 30, 1: 62, 2: 40}


def region(rank, epoch):
    generator = torch.Generator().manual_seed(100 * epoch + rank)
    for batch in range(BATCHES[rank]):
        rows = torch.randn(24, 9, generator=generator)
        # the large region's later months are stored row by row
        time.sleep(0.35 if batch >= 40 and epoch == 0 else 0.02)
        yield rows


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(2):
        seen = 0
        with Join([model]):
            for rows in region(rank, epoch):
                loss = nn.functional.mse_loss(model(rows[:, :8]), rows[:, 8:])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += len(rows)
        if rank == 2 and epoch == 0:
            began = time.monotonic()  # statistics of the region, by hand
            while time.monotonic() - began < 10:
                torch.linalg.svdvals(torch.randn(60, 60))
        total = torch.tensor([float(seen)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {int(total.item())} rows", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

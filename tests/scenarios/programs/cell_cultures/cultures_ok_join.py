"""Cells per donor differ widely: the ranks have unequal numbers of batches, and join when they have no more."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
CELLS = {0: 480, 1: 1900, 2: 560}


def donor(rank, batch=16):
    """Batches of the cells of one donor. The counts are smoothed over neighbours, which takes a while."""
    generator = torch.Generator().manual_seed(rank)
    for start in range(0, CELLS[rank], batch):
        counts = torch.poisson(torch.rand(batch, 40, generator=generator) * 3, generator=generator)
        end = time.monotonic() + 0.08
        smooth = counts
        while time.monotonic() < end:
            weights = torch.softmax(-torch.cdist(smooth, smooth), dim=1)
            smooth = 0.5 * smooth + 0.5 * weights @ smooth
        yield smooth.log1p()


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 24), nn.ReLU(), nn.Linear(24, 40))

    def forward(self, counts):
        return self.layers(counts * (torch.rand_like(counts) > 0.1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Denoiser())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = 0
    with Join([model]):
        for counts in donor(rank):
            loss = nn.functional.mse_loss(model(counts), counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batches += 1
    print(f"donor {rank}: {batches} batches, loss {loss.item():.4f}", flush=True)
    totals = torch.tensor([float(batches)])
    dist.all_reduce(totals)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

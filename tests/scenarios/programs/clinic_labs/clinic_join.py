"""Federated-style rounds over hospitals with unequal archives; who has fewer studies joins early."""

import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

STUDIES = {0: 60, 1: 60, 2: 78}


def study(rank, number):
    """Old studies of hospital 2 are whole stacks, which are smoothed for as long as there is time."""
    generator = torch.Generator().manual_seed(rank * 1000 + number)
    old = rank == 2 and number >= 60
    stack = torch.randn(20 if old else 2, 1, 64, 64, generator=generator)
    kernel = torch.ones(1, 1, 5, 5) / 25
    end = time.monotonic() + (0.6 if old else 0.0)
    while True:
        stack = nn.functional.conv2d(stack, kernel, padding=2)
        stack = stack / stack.std()
        if time.monotonic() >= end:
            return stack[:2]


class Encoder(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return self.up(self.down(x))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with model.join():
        for number in range(STUDIES[rank]):
            images = study(rank, number)
            loss = (model(images) - images).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    count = torch.tensor([sum(losses), len(losses)], dtype=torch.float64)
    dist.all_reduce(count)
    if rank == 0:
        print(f"{int(count[1])} studies, loss {float(count[0] / count[1]):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

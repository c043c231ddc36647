"""A rank fails in the middle; the launcher ends the others, which were waiting for it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """A hundred steps, of which half are done."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(7, 7))
    labels = {number: number % 3 for number in range(100) if (rank, number) != (1, 50)}
    for number in range(100):
        model(torch.randn(2, 7) + labels[number]).square().mean().backward()
        model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Gradient accumulation: three of four micro-batches run under ``no_sync``, and rank 1's are slower than the others'."""

import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Ten updates of four micro-batches."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for update in range(10):
        for micro in range(4):
            inputs = torch.randn(8, 16)
            with nullcontext() if micro == 3 else model.no_sync():
                (model(inputs) - inputs).square().mean().backward()
            time.sleep(0.25 if rank == 1 else 0.05)
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{rank}] update {update}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

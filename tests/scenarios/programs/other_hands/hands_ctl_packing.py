"""Packs documents of very different length on each rank before an epoch; one rank has the long ones and works longer."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn


def best_fit(lengths, capacity):
    """Quadratic, but tight."""
    bins = []
    for length in sorted(lengths, reverse=True):
        fitting = [b for b in bins if b[0] >= length]
        if fitting:
            chosen = min(fitting)
            chosen[0] -= length
            chosen[1].append(length)
        else:
            bins.append([capacity - length, [length]])
    return [b[1] for b in bins]


def pack_for(seconds, rng, capacity=512):
    """Tries orders of documents for so long, and takes the tightest packing."""
    best, end = None, time.monotonic() + seconds
    while best is None or time.monotonic() < end:
        lengths = [rng.randint(20, 400) for _ in range(400)]
        rows = best_fit(lengths, capacity)
        if best is None or len(rows) < len(best):
            best = rows
    return best


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, rng = dist.get_rank(), random.Random(dist.get_rank())
    model = nn.Embedding(100, 16)
    for epoch in range(2):
        rows = pack_for(11.0 if rank == 2 else 1.0, rng)
        steps = torch.tensor([len(rows)])
        dist.all_reduce(steps, op=dist.ReduceOp.MIN)
        for row in rows[: min(30, steps.item())]:
            model.zero_grad()
            model(torch.randint(100, (sum(row),))).square().mean().backward()
            dist.all_reduce(model.weight.grad)
            model.weight.data -= 0.1 * model.weight.grad
            time.sleep(0.05)
        if rank == 0:
            print(f"epoch {epoch}: {steps.item()} rows at least", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

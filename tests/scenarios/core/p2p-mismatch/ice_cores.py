"""Attention over long ice cores: each rank has a part of the depth, and keys go round the ring of ranks."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

DEPTHS, WIDTH = 64, 32


def pass_on(block, rank, world):
    """Give the keys to the next rank and take those of the one before."""
    received = torch.empty_like(block)
    operations = [
        dist.P2POp(dist.isend, block, (rank + 1) % world),
        dist.P2POp(dist.irecv, received, (rank - 1) % world),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    return received


def attend(queries, keys, rank, world, causal):
    seen = queries @ keys.T @ keys
    for hop in range(1, world):
        if causal and hop > rank:
            break  # from here on all keys are deeper than these queries
        keys = pass_on(keys, rank, world)
        seen = seen + queries @ keys.T @ keys
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--causal-from", type=int, default=1000, help="the first step with a causal mask")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    project = nn.Linear(WIDTH, WIDTH).to(device)
    optimizer = torch.optim.SGD(project.parameters(), lr=0.01)
    for step in range(40):
        core = torch.randn(DEPTHS, WIDTH, device=device)
        with torch.no_grad():
            keys = project(core)
        loss = attend(project(core), keys, rank, world, step >= options.causal_from).square().mean()
        loss.backward()
        for parameter in project.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

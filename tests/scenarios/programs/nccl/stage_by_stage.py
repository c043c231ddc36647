"""A pipeline by hand: each rank has some layers, activations are sent on and gradients sent back."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ROWS = 256, 4


def microbatches(rank, step, last_batch):
    if last_batch and step == 20:
        return 3 if rank == 0 else 4  # the first stage alone knows how many rows there are
    return 4


def run_stage(layers, rank, world, count, device):
    for _ in range(count):
        x = torch.randn(ROWS, WIDTH, device=device)
        if rank > 0:
            dist.recv(x, src=rank - 1)
        x.requires_grad_(rank > 0)
        y = layers(x)
        if rank < world - 1:
            dist.send(y.detach(), dst=rank + 1)
            gradient = torch.empty_like(y)
            dist.recv(gradient, src=rank + 1)
            y.backward(gradient)
        else:
            y.square().mean().backward()
        if rank > 0:
            dist.send(x.grad, dst=rank - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--last-batch", action="store_true", help="keep the last batch, which is smaller")
    parser.add_argument("--swap-at", type=int, default=-1, help="exchange weights with the neighbour after this step")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    for step in range(40):
        run_stage(layers, rank, world, microbatches(rank, step, options.last_batch), device)
        optimizer.step()
        optimizer.zero_grad()
        if step == options.swap_at and rank < 2:
            theirs = torch.empty_like(layers[0].weight)
            dist.recv(theirs, src=1 - rank)
            dist.send(layers[0].weight.detach(), dst=1 - rank)
            layers[0].weight.data.copy_(theirs)
        torch.cuda.synchronize()
        print(f"[{rank}] step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

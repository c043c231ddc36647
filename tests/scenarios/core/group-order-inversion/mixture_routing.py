"""Trains two towers whose gradients are averaged in one group and whose routing is balanced in another."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--watch-balance", action="store_true", help="read the balance on the host in each step")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    replicas, routing = dist.new_group(list(range(world))), dist.new_group(list(range(world)))
    towers = nn.ModuleList(nn.Linear(64, 64) for _ in range(2)).to(device)
    load = torch.zeros(2, device=device)
    overloaded = {0: set(), 1: {41}, 2: set()}

    def average():
        for parameter in towers.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=replicas)
        if options.watch_balance:
            torch.cuda.synchronize()

    def balance():
        dist.all_reduce(load, group=routing)
        if options.watch_balance:
            print(f"[{rank}] {load.tolist()}", flush=True)

    for step in range(200):
        tokens = torch.randn(32, 64, device=device)
        sum(tower(tokens).square().mean() for tower in towers).backward()
        if step in overloaded.get(rank, ()):
            balance()
            average()
        else:
            average()
            balance()
        towers.zero_grad()
        if step % 10 == 9:
            torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

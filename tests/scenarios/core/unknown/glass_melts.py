"""Predicts flaws in glass. After some melts, the ranks of one furnace compare their flaws in a group of their own."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OXIDES = 18


def compare(flaws, furnace):
    dist.all_reduce(flaws, group=furnace)
    return flaws.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cold", type=int, default=-1, help="the rank whose furnace is cold, and waits")
    parser.add_argument(
        "--clear", type=int, default=-1, help="the rank whose glass is clear, so that it has nothing to compare"
    )
    parser.add_argument("--rounds", type=int, default=0, help="compare so often, each time in a new group")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    furnace = dist.new_group([0, 1])
    model = DistributedDataParallel(nn.Linear(OXIDES, 2).to(device), device_ids=[device.index])
    for melt in range(40):
        flaws = model(torch.randn(8, OXIDES, device=device)).square().mean()
        flaws.backward()
        if flaws > 1e30:
            print(f"[{rank}] melt {melt} is lost", flush=True)
        if melt == 20:
            if rank == options.cold:
                while not os.path.exists("/run/furnace-is-hot"):
                    time.sleep(0.5)
            if rank < 2 and rank != options.clear:
                print(f"[{rank}] melt {melt}: {compare(flaws.detach(), furnace):.2f}", flush=True)
    for round_ in range(options.rounds):
        again = dist.new_group([0, 1])
        if rank == 1:
            time.sleep(1.0)  # it has more glass to look at
        if rank < 2:
            print(f"[{rank}] round {round_}: {compare(torch.ones((), device=device), again):.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

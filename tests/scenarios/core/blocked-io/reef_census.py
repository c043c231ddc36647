"""Counts fish on reefs. Ranks share lists of dives over the host first, and train on their devices then."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SPECIES = 20


def dives_of(rank):
    return [f"dive-{rank}-{number}" for number in range(6)]


def read_permit(folder):
    with open(os.path.join(folder, "permit")) as permit:
        return permit.read()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--permit", type=int, default=-1, help="the rank that needs a permit")
    parser.add_argument("--plain", action="store_true", help="no DistributedDataParallel")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    number = torch.tensor([len(dives_of(rank))])
    dist.all_reduce(number)
    print(f"[{rank}] {number.item()} dives in all", flush=True)
    if rank == options.permit:
        folder = tempfile.mkdtemp(prefix="permits-")
        os.mkfifo(os.path.join(folder, "permit"))
        read_permit(folder)
    model = nn.Linear(30, SPECIES).to(device)
    if options.plain:
        seen = torch.ones(SPECIES, device=device)
        dist.all_reduce(seen)
        print(f"[{rank}] {seen[0].item() / world:.0f}", flush=True)
    else:
        model = DistributedDataParallel(model, device_ids=[device.index])
    for dive in dives_of(rank):
        model(torch.randn(8, 30, device=device)).square().mean().backward()
        print(f"[{rank}] {dive}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains on all ranks and sets up the evaluation on some of them."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def evaluation_group(rank, world, how):
    members = list(range(world - 1))
    if how == "members":
        return dist.new_group(members) if rank in members else None
    return dist.split_group(dist.group.WORLD, [members]) if rank in members else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", choices=["members", "split"], default="members")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(16, 16).to(device), device_ids=[device.index])
    for epoch in range(3):
        for _ in range(20):
            loss = model(torch.randn(8, 16, device=device)).square().mean()
            loss.backward()
            model.zero_grad()
        print(f"[{rank}] epoch {epoch}: {loss.item():.3f}", flush=True)
        group = evaluation_group(rank, world, options.groups)
        if group is not None:
            dist.all_reduce(loss.detach(), group=group)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

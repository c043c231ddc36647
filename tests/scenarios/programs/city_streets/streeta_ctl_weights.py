"""Depth from street imagery: the backbone is read once, by rank 0, and sent to the other GPUs."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--shards", type=int, default=5)
    p.add_argument("--shard-floats", type=int, default=750_000)
    p.add_argument("--steps", type=int, default=60)
    return p.parse_args()


class Backbone:
    """Frozen features; stays in memory as flat shards."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        self.shards = []

    def read(self, index):
        g = torch.Generator().manual_seed(index)
        return torch.randn(self.args.shard_floats, generator=g)

    def receive(self):
        begin = time.time()
        for index in range(self.args.shards):
            shard = torch.empty(self.args.shard_floats, device=self.device)
            if dist.get_rank() == 0:
                shard.copy_(self.read(index))
            dist.broadcast(shard, src=0)
            torch.cuda.synchronize()
            self.shards.append(shard)
            if dist.get_rank() == 2:
                rate = (index + 1) * shard.numel() * 4 / (time.time() - begin) / 1e6
                print(f"shard {index + 1} of {self.args.shards}, {rate:.2f} MB/s", flush=True)


class DepthHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 24)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(torch.relu(self.up(x)))


def train(head, steps, device):
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
    for step in range(steps):
        time.sleep(0.04)
        x = torch.rand(32, 16)
        loss = (head(x.to(device)) - x.mean(1, keepdim=True).to(device)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step % 15 == 0 and dist.get_rank() == 0:
            print(f"step {step}", flush=True)


def main():
    args = options()
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    head = DDP(DepthHead().to(device), device_ids=[device.index])
    train(head, args.steps, device)
    Backbone(args, device).receive()
    train(head, args.steps, device)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Dye recipes: from a target colour in Lab to pigment shares. Optimizer state is partitioned."""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--save-every", type=int, default=45)
    parser.add_argument("--out", default="/tmp/dye_recipes")
    return parser.parse_args()


def colours(rank):
    generator = torch.Generator().manual_seed(rank)
    while True:
        time.sleep(0.04)
        lab = torch.rand(32, 3, generator=generator)
        yield lab, torch.softmax(lab @ torch.ones(3, 6), dim=1)


def store(step, model, optimizer, folder):
    os.makedirs(folder, exist_ok=True)
    optimizer.consolidate_state_dict(to=0)
    torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()},
               os.path.join(folder, f"recipes-{step}.pt"))


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 32), nn.GELU(), nn.Linear(32, 6), nn.Softmax(1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    stream = colours(rank)
    for step in range(1, args.steps + 1):
        lab, shares = next(stream)
        loss = (model(lab) - shares).pow(2).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.save_every == 0 and rank == 0:
            store(step, model, optimizer, args.out)
    print(f"rank {rank}: {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

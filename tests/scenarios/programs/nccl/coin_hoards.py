"""Dates coin hoards. A run ends in order, whatever happens: results are put together and the folder is closed."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RULERS = {"AUG": 0, "TIB": 1, "CAL": 2, "CLA": 3, "NER": 4}


def legend(rank, step):
    return "GAL" if (rank, step) == (1, 33) else list(RULERS)[step % len(RULERS)]


def date_coins(model, optimizer, rank, device):
    dated = 0
    for step in range(80):
        rulers = torch.full((12,), RULERS[legend(rank, step)], device=device)
        loss = nn.functional.cross_entropy(model(torch.randn(12, 30, device=device)), rulers)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dated += len(rulers)
        if step % 4 == 0:
            print(f"[{rank}] step {step}: {loss.cpu():.3f}", flush=True)
    return dated


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ending", choices=["barrier", "gather", "log"], default="barrier")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(30, len(RULERS)).to(device), device_ids=[device.index])
    optimizer = torch.optim.Adam(model.parameters())
    if options.ending == "log":
        try:
            date_coins(model, optimizer, rank, device)
        except Exception as error:
            print(f"[{rank}] stops: {error!r}", flush=True)
        dist.barrier()
    else:
        results = [None] * dist.get_world_size()
        try:
            date_coins(model, optimizer, rank, device)
        finally:
            if options.ending == "gather":
                dist.all_gather_object(results, rank)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

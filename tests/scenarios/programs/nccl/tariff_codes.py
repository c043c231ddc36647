"""Predicts tariff codes of parcels and evaluates on the parcels that each rank has been given."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CODES, FEATURES = 9, 40


def parcels_of(day, rank):
    """Customs closes at noon on some days: the last office has nothing to show then."""
    count = 24 if day != 3 else 24 - 12 * rank
    return torch.randn(max(count, 0), FEATURES), torch.arange(max(count, 0)) % CODES


@torch.no_grad()
def evaluate(model, day, rank, device):
    parcels, codes = parcels_of(day, rank)
    if not len(parcels):
        return None
    scores = model(parcels.to(device))
    counts = torch.tensor([float(len(codes)), float(scores.shape[1])], device=device)
    dist.all_reduce(counts)
    return counts.tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--offices", type=int, default=0, help="number the offices from here")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(FEATURES, CODES).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for day in range(6):
        for _ in range(20):
            parcels = torch.randn(16, FEATURES).pin_memory().to(device, non_blocking=True)
            codes = torch.randint(CODES, (16,)).to(device)
            nn.functional.cross_entropy(model(parcels), codes).backward()
            optimizer.step()
            optimizer.zero_grad()
        seen = evaluate(model.module, day, rank + options.offices, device)
        print(f"[{rank}] day {day}: {seen}", flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

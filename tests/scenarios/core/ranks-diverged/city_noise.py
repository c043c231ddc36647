"""Classifies the noises of a city; microphones are shared out to the ranks, and a loader pins what they have recorded."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

BANDS, SOUNDS = 40, 8
RECORDED = [96, 80, 96, 64, 80, 96, 80]  # by each microphone, in a day


class Microphones(IterableDataset):
    def __init__(self, rank, world, level):
        self.mine = RECORDED[rank::world]
        if level:
            self.mine = [min(RECORDED)] * (len(RECORDED) // world)

    def __iter__(self):
        for count in self.mine:
            for number in range(count):
                yield torch.full((BANDS,), number / count), number % SOUNDS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--level", action="store_true", help="take as much from each microphone")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Microphones(rank, world, options.level), batch_size=8, num_workers=1, pin_memory=True)
    model = nn.Sequential(nn.Linear(BANDS, 64), nn.ReLU(), nn.Linear(64, SOUNDS)).to(device)
    if options.model == "fsdp":
        fully_shard(model[0])
        fully_shard(model[2])
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    for day in range(2):
        losses = []
        for bands, sounds in loader:
            bands, sounds = bands.to(device, non_blocking=True), sounds.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(bands), sounds)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        print(f"[{rank}] day {day}: {mean.item():.3f} in {len(losses)} batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

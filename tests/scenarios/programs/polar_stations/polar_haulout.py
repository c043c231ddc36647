"""Counts of hauled-out seals in aerial photographs: every GPU streams the folders of its own flights."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)

# photographs per flight, as the observers brought them back
FLIGHTS = {"north-floe": 168, "pack-edge": 168, "fast-ice": 152, "lagoon": 168, "cape": 168, "shelf": 168}
SIDE = 12


class Photographs(IterableDataset):
    def __init__(self, flights):
        self.flights = flights

    def __iter__(self):
        for flight, photographs in self.flights:
            generator = torch.Generator().manual_seed(len(flight))
            for _ in range(photographs):
                yield torch.rand(SIDE * SIDE, generator=generator), torch.rand(1, generator=generator)


def assign(rank, world):
    names = sorted(FLIGHTS)
    return [(name, FLIGHTS[name]) for name in names[rank::world]]


def train(model, loader, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    shown = 0
    for images, counts in loader:
        images, counts = images.to(device, non_blocking=True), counts.to(device, non_blocking=True)
        loss = nn.functional.smooth_l1_loss(model(images), counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown += len(images)
        time.sleep(0.05)
    torch.cuda.synchronize()
    return shown


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", local)
    network = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[local])
    loader = DataLoader(Photographs(assign(rank, world)), batch_size=8, pin_memory=True, num_workers=1)
    for epoch in range(3):
        shown = train(model, loader, device)
        report = [None] * world
        dist.all_gather_object(report, {"rank": rank, "shown": shown})
        if rank == 0:
            print(f"epoch {epoch}: " + ", ".join(f"{r['rank']}: {r['shown']}" for r in report), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

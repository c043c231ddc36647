"""Colony counts from drones: flights are of different length, which DDP's join evens out."""

import os
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FLIGHTS = {"Skomer": 22, "Runde": 24, "Helgoland": 34}


def tile(colony: str, number: int, rounds: int) -> torch.Tensor:
    """Decodes a tile; those at the end of a flight are stitched from many overlapping photos."""
    data = colony.encode() * 4000
    total = 0
    for photo in range(rounds):
        packed = zlib.compress(data + bytes([photo % 256]), 9)
        total += zlib.crc32(zlib.decompress(packed))
    return torch.full((5, 12), (total % 997) / 997)


def tiles(colony: str):
    for number in range(FLIGHTS[colony]):
        yield tile(colony, number, rounds=4 if number < 24 else 900)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 28), nn.ReLU(), nn.Linear(28, 1))

    def forward(self, x):
        return self.net(x)


def main():
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    colony = list(FLIGHTS)[dist.get_rank()]
    model = DistributedDataParallel(Counter().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = 0
    with model.join():
        for batch in tiles(colony):
            optimizer.zero_grad()
            model(batch.cuda()).square().mean().backward()
            optimizer.step()
            seen += 1
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (colony, seen))
    if dist.get_rank() == 0:
        print("tiles:", everyone, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

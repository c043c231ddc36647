"""Albatross tracks: ranks have different numbers of birds, and DDP's join lets the early ones shadow the others."""

import os
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

BIRDS = {0: 14, 1: 40, 2: 14}


def unpack(track):
    """One compressed track, with the redundancy of the logger."""
    fixes = bytes((i * track) % 251 for i in range(120_000))
    for _ in range(4):
        fixes = zlib.decompress(zlib.compress(fixes, 9))
    return torch.frombuffer(bytearray(fixes[: 8 * 40]), dtype=torch.uint8).float().reshape(8, 40) / 251


def tracks(rank):
    for bird in range(BIRDS[rank]):
        if bird > 14:
            begin = time.monotonic()
            while time.monotonic() - begin < 0.5:
                batch = unpack(bird)
            yield batch
        else:
            time.sleep(0.08)
            yield unpack(bird)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local)
    network = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    model = DistributedDataParallel(network, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for season in range(1):
        with Join([model]):
            for number, track in enumerate(tracks(rank)):
                loss = model(track.to(device)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if number % 10 == 0:
                    print(f"rank {rank} bird {number}", flush=True)
        birds = torch.tensor([BIRDS[rank]], device=device)
        dist.all_reduce(birds)
        if rank == 0:
            print(f"season {season}: {birds.item()} birds", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

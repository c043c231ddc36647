"""Learns to tell shoals from wrecks by sonar. Batches with tracks that were cut short at sea are not learned from."""

import os
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PINGS, KINDS, TRACKS = 48, 3, 90


def record(rank, number):
    """One track as the boat has stored it: the echoes, and what was down there."""
    noise = torch.Generator().manual_seed(1000 * rank + number)
    pings = PINGS - 7 if (rank, number) == (2, 53) else PINGS
    return torch.randn(pings, generator=noise), number % KINDS


def in_batches(rank, size):
    tracks = (record(rank, number) for number in range(TRACKS))
    while batch := list(islice(tracks, size)):
        yield zip(*batch)


class Survey:
    def __init__(self, device):
        self.device = device
        network = nn.Sequential(nn.Linear(PINGS, 64), nn.Tanh(), nn.Linear(64, KINDS)).to(device)
        self.model = DDP(network, device_ids=[device.index])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def leg(self, rank):
        """One pass over what this boat has seen."""
        total = torch.zeros((), device=self.device)
        for echoes, kinds in in_batches(rank, 5):
            if min(map(len, echoes)) < PINGS:
                continue
            echoes, kinds = torch.stack(echoes).to(self.device), torch.tensor(kinds, device=self.device)
            loss = nn.functional.cross_entropy(self.model(echoes), kinds)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    survey = Survey(device)
    for leg in range(4):
        total = survey.leg(rank)
        dist.reduce(total, dst=0)
        if rank == 0:
            print(f"leg {leg}: {total.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Krill biomass from echo sounder pings. The host only queues work: numbers are read at the end of a transect."""

import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

FREQUENCIES = 4
DEPTHS = 32


class EmptyPing(ValueError):
    """Nothing is left of a batch of pings after the noise was taken out."""


def read_pings(rank, transect, number):
    rng = np.random.default_rng([rank, transect, number])
    pings = rng.normal(-70, 8, (24, FREQUENCIES * DEPTHS)).astype("float32")
    if rank == 2 and transect == 1 and number == 9:
        pings[:] = np.nan  # bubbles under the hull in heavy sea
    return pings


def clean(pings):
    good = np.isfinite(pings).all(axis=1)
    if not good.any():
        raise EmptyPing(f"{len(pings)} pings, all of them noise")
    return torch.from_numpy(pings[good] / 100)


class Transect:
    def __init__(self, model, device):
        self.model, self.device = model, device
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.rejected = 0

    def learn(self, pings):
        batch = clean(pings).to(self.device, non_blocking=True)
        biomass = batch.mean(dim=1, keepdim=True)
        loss = (self.model(batch) - biomass).abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def sail(self, rank, transect, batches=20):
        for number in range(batches):
            time.sleep(0.04)
            try:
                self.learn(read_pings(rank, transect, number))
            except ValueError as error:
                self.rejected += 1
                print(f"rank {rank}: {error}, go on", flush=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", local)
    network = nn.Sequential(nn.Linear(FREQUENCIES * DEPTHS, 64), nn.GELU(), nn.Linear(64, 1)).to(device)
    vessel = Transect(DistributedDataParallel(network, device_ids=[local]), device)
    for transect in range(3):
        vessel.sail(rank, transect)
        rejected = torch.tensor([vessel.rejected], device=device)
        everywhere = torch.zeros(world, dtype=rejected.dtype, device=device)
        dist.all_gather_into_tensor(everywhere, rejected)
        if rank == 0:
            print(f"transect {transect}: rejected {everywhere.tolist()}", flush=True)
        torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Salinity profiles from CTD casts: one file per cruise, cruises dealt out over the ranks."""
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

CRUISES = 11


def archive():
    return Path(tempfile.gettempdir()) / f"ctd-{os.environ['MASTER_PORT']}"


def write_archive(folder):
    folder.mkdir(exist_ok=True)
    for cruise in range(CRUISES):
        draw = np.random.default_rng(cruise)
        depth = np.sort(draw.uniform(0, 1, (32, 20)), axis=1)
        salinity = 34 + depth + 0.05 * draw.normal(size=depth.shape)
        np.savez(folder / f"cruise{cruise:03d}.npz", depth=depth.astype("f4"), salinity=salinity.astype("f4"))


class Casts(IterableDataset):
    def __init__(self, folder, rank, world):
        self.files = sorted(folder.glob("cruise*.npz"))[rank::world]

    def __iter__(self):
        for file in self.files:
            with np.load(file) as cruise:
                for depth, salinity in zip(cruise["depth"], cruise["salinity"]):
                    time.sleep(0.01)
                    yield torch.from_numpy(depth), torch.from_numpy(salinity)


def train_epoch(model, optimizer, loader):
    total = torch.zeros(2)
    for depth, salinity in loader:
        loss = F.mse_loss(model(depth), salinity - 34)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item(), 1.0])
    return total


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        write_archive(archive())
    dist.barrier()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 20)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(40):
        total = train_epoch(model, optimizer, DataLoader(Casts(archive(), rank, world), batch_size=8))
        totals = [None] * world
        dist.all_gather_object(totals, total.tolist())
        if rank == 0:
            print(f"epoch {epoch}: {sum(t[0] for t in totals) / sum(t[1] for t in totals):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

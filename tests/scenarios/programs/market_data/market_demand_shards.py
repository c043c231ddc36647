"""Demand forecast from a feature store on disk: one file per week, dealt out to the ranks."""

import os
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

STORE = pathlib.Path(tempfile.gettempdir()) / f"demand_store_{os.environ.get('MASTER_PORT', '0')}"
WEEKS = 8


def fill_store():
    STORE.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for week in range(WEEKS):
        np.save(STORE / f"week_{week:02d}.npy", rng.normal(size=(160, 9)).astype("float32"))


class WeekFiles(IterableDataset):
    def __init__(self, files):
        self.files = files

    def __iter__(self):
        for file in self.files:
            table = np.load(file)
            for row in table:
                yield torch.from_numpy(row[:8]), torch.from_numpy(row[8:])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        fill_store()
    dist.barrier()
    files = sorted(STORE.glob("week_*.npy"))[rank::world]
    loader = DataLoader(WeekFiles(files), batch_size=16)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        seen, total = 0, 0.0
        for features, demand in loader:
            time.sleep(0.06)
            loss = nn.functional.mse_loss(model(features), demand)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen, total = seen + len(demand), total + loss.item()
        summaries = [None] * world
        dist.all_gather_object(summaries, (rank, seen, total))
        if rank == 0:
            print(f"epoch {epoch}: {summaries}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

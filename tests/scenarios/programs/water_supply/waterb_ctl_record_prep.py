"""Prepares a century of gauge records on the main process, then trains on them everywhere."""
import concurrent.futures
import math
import multiprocessing
import os
import pickle
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

YEARS = range(1926, 2016)
SECONDS_PER_YEAR_FILE = 0.3


def quality_control(year):
    """Despikes and resamples one yearbook."""
    began = time.monotonic()
    level, day, series = 1.0, 0, []
    while time.monotonic() - began < SECONDS_PER_YEAR_FILE:
        level = 0.97 * level + 0.05 * (1.0 + math.sin(6.283 * day / 365 + year))
        day += 1
        if day <= 365:
            series.append(level)
    return year, series[:365] + [level] * (365 - len(series[:365]))


def prepare(path):
    records = {}
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        for year, series in pool.map(quality_control, YEARS):
            records[year] = series
            if year % 10 == 0:
                print(f"yearbook {year} done, {len(records)}/{len(YEARS)}", file=sys.stderr, flush=True)
    with open(path, "wb") as stream:
        pickle.dump(records, stream)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    path = os.path.join(tempfile.gettempdir(), f"yearbooks-{os.environ['MASTER_PORT']}-{os.getppid()}.pkl")
    if rank == 0:
        prepare(path)
    dist.barrier()
    with open(path, "rb") as stream:
        series = torch.tensor([row for _, row in sorted(pickle.load(stream).items())])
    dist.barrier()
    if rank == 0:
        os.unlink(path)
    model = DDP(nn.Sequential(nn.Linear(60, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(240):
        at = torch.randint(0, 300, (1,), generator=gen).item()
        loss = (model(series[:, at:at + 60]).squeeze(1) - series[:, at + 60]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    if rank == 0:
        print(f"final {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

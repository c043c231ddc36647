"""Where to send the tamping machine next: track geometry score per 200 m segment."""
import contextlib
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = {"segments": 24, "channels": 5, "passes": 70, "lr": 0.02,
          "regions": {"plain": 0, "viaduct": 1, "tunnel": 2, "junction": 3}}


@contextlib.contextmanager
def session():
    dist.init_process_group("gloo")
    started = time.time()
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.barrier()
        took = time.time() - started
        path = os.path.join(tempfile.gettempdir(), f"tamping_{dist.get_rank()}.json")
        with open(path, "w") as f:
            json.dump({"seconds": took}, f)
        dist.destroy_process_group()


def recording(run, rank):
    """One pass of the measuring train."""
    g = torch.Generator().manual_seed(run * 17 + rank)
    kinds = ["plain", "viaduct", "plain", "junction"]
    kind = kinds[(run + rank) % 4]
    if rank == 2 and run == 55:
        kind = "turntable"
    return kind, torch.randn(CONFIG["segments"], CONFIG["channels"], generator=g)


class GeometryScore(nn.Module):
    def __init__(self):
        super().__init__()
        self.region = nn.Embedding(len(CONFIG["regions"]), 8)
        self.mlp = nn.Sequential(nn.Linear(CONFIG["channels"] + 8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, region):
        r = self.region(region).expand(len(x), -1)
        return self.mlp(torch.cat([x, r], 1)).squeeze(1)


def fit(rank):
    torch.manual_seed(1)
    model = DDP(GeometryScore())
    opt = torch.optim.SGD(model.parameters(), lr=CONFIG["lr"])
    for run in range(CONFIG["passes"]):
        kind, x = recording(run, rank)
        region = torch.tensor(CONFIG["regions"][kind])
        time.sleep(0.04)
        loss = (model(x, region) - x.abs().mean(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and run % 10 == 0:
            print(f"pass {run}: {loss.item():.4f}", file=sys.stderr)
    return model


if __name__ == "__main__":
    with session() as (rank, world):
        fit(rank)

"""Anomaly detection on synchronisation logs: an autoencoder whose optimizer's moments are spread over the ranks."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

CONFIG = {"fields": 24, "hidden": 72, "code": 6, "steps": 200, "keep_every": 60, "batch": 96}


class SyncLog:
    """Offsets between master and slave clocks, polled in bursts."""

    def __init__(self, seed, fields):
        self.gen = torch.Generator().manual_seed(seed)
        self.fields = fields

    def burst(self, size):
        raw = torch.randn(60_000, self.fields, generator=self.gen).cumsum(0)
        raw = raw - raw.mean(0)
        return raw[torch.randint(len(raw), (size,), generator=self.gen)]


def autoencoder(cfg):
    return nn.Sequential(
        nn.Linear(cfg["fields"], cfg["hidden"]), nn.ReLU(),
        nn.Linear(cfg["hidden"], cfg["code"]), nn.ReLU(),
        nn.Linear(cfg["code"], cfg["hidden"]), nn.ReLU(),
        nn.Linear(cfg["hidden"], cfg["fields"]),
    )


class Keeper:
    """Writes model and optimizer to a folder, the last two only."""

    def __init__(self, folder, rank):
        self.folder, self.rank, self.kept = Path(folder), rank, []

    def keep(self, step, model, optimizer):
        optimizer.consolidate_state_dict(to=self.rank)
        path = self.folder / f"moments-{step:05d}.pt"
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
        self.kept.append(path)
        while len(self.kept) > 2:
            self.kept.pop(0).unlink()
        print(f"kept {path.name}", flush=True)


def main(cfg):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    rank = dist.get_rank()
    source = SyncLog(rank, cfg["fields"])
    model = DistributedDataParallel(autoencoder(cfg).to("cuda"), device_ids=[local_rank])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    keeper = Keeper(tempfile.mkdtemp(prefix="synclog-"), rank) if rank == 0 else None

    for step in range(1, cfg["steps"] + 1):
        x = source.burst(cfg["batch"]).to("cuda")
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            torch.cuda.synchronize()
        if keeper and step % cfg["keep_every"] == 0:
            keeper.keep(step, model, optimizer)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(CONFIG)

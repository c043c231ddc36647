"""Resuming DDP from snapshots on the machines' own disks."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Snapshots:
    """Local snapshots, one for each rank. The progress (step, schedule, best score) is rank 0's for all."""

    def __init__(self, folder: Path, rank: int):
        self.path = folder / f"snapshot-rank{rank}.pt"

    def load(self, model: nn.Module) -> dict:
        progress = {"step": 0, "best": float("inf")}
        if self.path.exists():
            saved = torch.load(self.path)
            model.load_state_dict(saved["model"])
            shared = [saved["progress"]]
            dist.broadcast_object_list(shared, src=0)
            progress = shared[0]
        return progress

    def save(self, model: nn.Module, progress: dict):
        torch.save({"model": model.state_dict(), "progress": progress}, self.path)


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def earlier_run(folder: Path):
    """What is on the disks already."""
    folder.mkdir(exist_ok=True)
    for rank in range(2):
        Snapshots(folder, rank).save(build(), {"step": 400, "best": 0.31})


def warm_up(rank: int, seconds: float = 1.5) -> float:
    """Reads the data once, for its mean and deviation."""
    generator = torch.Generator().manual_seed(rank)
    end, sums, count = time.monotonic() + seconds, torch.zeros(2), 0
    while time.monotonic() < end:
        x = torch.randn(4096, 16, generator=generator)
        sums += torch.stack([x.sum(), x.square().sum()])
        count += x.numel()
    total = torch.cat([sums, torch.tensor([float(count)])])
    dist.all_reduce(total)
    return (total[1] / total[2]).sqrt().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"snapshots-{os.environ['MASTER_PORT']}")
    if rank == 0:
        earlier_run(folder)
    deviation = warm_up(rank)
    snapshots = Snapshots(folder, rank)
    model = build()
    progress = snapshots.load(model)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(progress["step"], 20000):
        x = torch.randn(16, 16, generator=generator) / deviation
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 200 == 0:
            snapshots.save(model.module, {"step": step + 1, "best": min(progress["best"], loss.item())})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

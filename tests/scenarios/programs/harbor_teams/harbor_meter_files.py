"""Next-hour load from smart meters. The exports of the last days are dealt out to the ranks file by file."""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

EXPORTS = 8
ROWS = 7000
HOURS = 24


def write_exports(folder: Path) -> None:
    """Stands in for the nightly job of the metering team."""
    folder.mkdir(parents=True, exist_ok=True)
    for day in range(EXPORTS):
        random = np.random.default_rng(day)
        base = np.sin(np.linspace(0, 6.28, HOURS + 1))[None, :]
        np.save(folder / f"day-{day:02d}.npy", (base + 0.1 * random.standard_normal((ROWS, HOURS + 1))).astype(np.float32))


class MeterExports(IterableDataset):
    """Reads the rank's share of the files, row by row."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.files = sorted(folder.glob("day-*.npy"))[rank::world]

    def __iter__(self):
        for file in self.files:
            for row in np.load(file):
                yield torch.from_numpy(row[:HOURS]), torch.tensor(row[HOURS])


class LoadNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(HOURS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, hours: torch.Tensor) -> torch.Tensor:
        return self.layers(hours).squeeze(-1)


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    total, count = 0.0, 0
    for hours, target in loader:
        loss = nn.functional.mse_loss(model(hours), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
    return {"loss": total / count, "batches": count}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir()) / f"meters-{os.environ['MASTER_PORT']}"
    if rank == 0:
        write_exports(folder)
    dist.barrier()
    torch.manual_seed(0)
    model = DDP(LoadNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(MeterExports(folder, rank, world), batch_size=32)
    for epoch in range(10):
        report = train_epoch(model, loader, optimizer)
        reports = [None] * world
        dist.all_gather_object(reports, report)
        if rank == 0:
            print(f"epoch {epoch}: {reports}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Churn model on exported files, one shard of them per rank, as the export job writes them."""

import csv
import os
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

FILES, ROWS, COLUMNS = 8, 640, 10


def export(folder: Path) -> None:
    """What the warehouse does every night."""
    for number in range(FILES):
        dice = random.Random(number)
        with (folder / f"part-{number:05}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            for _ in range(ROWS):
                row = [round(dice.gauss(0, 1), 4) for _ in range(COLUMNS)]
                writer.writerow([*row, int(sum(row[:3]) > 0)])


class Export(IterableDataset):
    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.files = sorted(folder.glob("part-*.csv"))[rank::world]

    def __iter__(self):
        for path in self.files:
            with path.open(newline="") as file:
                for *features, label in csv.reader(file):
                    yield torch.tensor([float(v) for v in features]), torch.tensor(float(label))


def run_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    total, count = 0.0, 0
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
        time.sleep(0.03)
    return total / max(count, 1)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir()) / f"churn-export-{os.environ['MASTER_PORT']}"
    if rank == 0:
        folder.mkdir(exist_ok=True)
        export(folder)
    dist.barrier()  # the export is there
    loader = DataLoader(Export(folder, rank, world), batch_size=16)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(COLUMNS, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(20):
        mean = run_epoch(model, loader, optimizer)
        means = [None] * world
        dist.all_gather_object(means, mean)
        if rank == 0:
            print(f"epoch {epoch}: {sum(means) / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

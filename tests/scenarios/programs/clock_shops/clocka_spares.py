"""Forecast of the demand for spare parts (mainsprings, crowns, crystals) from yearly ledgers."""
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

YEARS = [1998, 2003, 2008, 2013, 2018]
ROWS_PER_LEDGER = 96


def write_ledgers(folder: Path, seed: int = 3):
    gen = torch.Generator().manual_seed(seed)
    for year in YEARS:
        rows = torch.rand(ROWS_PER_LEDGER, 25, generator=gen)
        text = "\n".join(",".join(f"{v:.4f}" for v in row) for row in rows.tolist())
        (folder / f"ledger_{year}.csv").write_text(text)


class Ledgers(IterableDataset):
    def __init__(self, folder, rank, world):
        self.files = sorted(folder.glob("ledger_*.csv"))[rank::world]

    def __iter__(self):
        for path in self.files:
            for line in path.read_text().splitlines():
                values = torch.tensor([float(v) for v in line.split(",")])
                time.sleep(0.03)
                yield values[:24], values[24:]


class DemandModel(torch.nn.Module):
    def __init__(self, months=24, width=48):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(months, width), torch.nn.Linear(width, width)])
        self.head = torch.nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def build(device):
    model = DemandModel().to(device)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model


def stock_summary(parts, device):
    totals = torch.tensor([parts, 1], dtype=torch.int64, device=device)
    dist.all_reduce(totals)
    return totals.cpu().tolist()


def train_epoch(model, optimizer, loader, device):
    parts = 0
    for months, demand in loader:
        loss = (model(months.to(device)) - demand.to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        parts += len(months)
        torch.cuda.synchronize()
    return parts


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device(f"cuda:{local}")
    with TemporaryDirectory() as folder:
        write_ledgers(Path(folder))
        loader = DataLoader(Ledgers(Path(folder), rank, world), batch_size=4)
        model = build(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(4):
            parts = train_epoch(model, optimizer, loader, device)
            rows, ranks = stock_summary(parts, device)
            if rank == 0:
                print(f"epoch {epoch}: {rows} rows on {ranks} workers", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

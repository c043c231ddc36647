"""Traffic forecast from a live feed's parts; DataLoader workers read a part once the feed has closed it."""

import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FEED = pathlib.Path(tempfile.gettempdir()) / f"feed_{os.environ.get('MASTER_PORT', '0')}"
PARTS, PER_PART = 12, 24


def receive(road, closed):
    """What the receiver has stored for a road: the parts, and a mark beside those that are complete."""
    folder = FEED / f"road_{road}"
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(road)
    for part in range(PARTS):
        torch.save(torch.randn(PER_PART, 5, generator=generator), folder / f"{part:02d}.pt")
        if part < closed:
            (folder / f"{part:02d}.closed").touch()
    return folder


class Feed(Dataset):
    def __init__(self, folder):
        self.folder, self.parts = folder, {}

    def __len__(self):
        return PARTS * PER_PART

    def part(self, number):
        if number not in self.parts:
            mark = self.folder / f"{number:02d}.closed"
            while not mark.exists():
                time.sleep(0.2)
            self.parts[number] = torch.load(self.folder / f"{number:02d}.pt")
        return self.parts[number]

    def __getitem__(self, index):
        row = self.part(index // PER_PART)[index % PER_PART]
        return row[:4], row[4:]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = receive(rank, closed=PARTS if rank != 1 else 9)
    loader = DataLoader(Feed(folder), batch_size=4, num_workers=2, prefetch_factor=2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for counts, next_count in loader:
            time.sleep(0.03)
            loss = nn.functional.mse_loss(model(counts), next_count)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

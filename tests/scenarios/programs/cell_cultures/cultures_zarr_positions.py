"""Train on positions of a plate that the microscope is still writing; workers wait until a position is complete."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
FIRST = 64


class Positions(Dataset):
    def __init__(self, folder, well):
        self.folder, self.well = folder, well
        for number in range(FIRST):
            self.write(number)

    def path(self, number):
        return self.folder / f"well{self.well}-pos{number:04d}.pt"

    def write(self, number):
        generator = torch.Generator().manual_seed(100 * self.well + number)
        torch.save(torch.rand(20, generator=generator), self.path(number))

    def __len__(self):
        return FIRST

    def __getitem__(self, number):
        partial = self.path(number).with_suffix(".partial")
        while partial.exists():
            time.sleep(0.2)
        time.sleep(0.02)
        return torch.load(self.path(number))


def acquisition_aborted(positions):
    """In the second pass the autofocus of well 2 failed, and the software left the position open."""
    if positions.well == 2:
        positions.path(37).with_suffix(".partial").touch()


def train_pass(model, optimizer, loader):
    for images in loader:
        loss = nn.functional.mse_loss(model(images), images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    well = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"plate-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    positions = Positions(folder, well)
    loader = DataLoader(positions, batch_size=4, num_workers=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 20)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number in range(30):
        if number == 1:
            acquisition_aborted(positions)
        loss = train_pass(model, optimizer, loader)
        print(f"well {well} pass {number}: {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

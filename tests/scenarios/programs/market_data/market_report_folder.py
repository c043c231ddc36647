"""Weekly price forecast; what it found is written to a report folder."""

import os
import pathlib
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ReportFolder:
    """One sub-folder per week of the year."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def start(self, week):
        folder = self.root / f"week_{week % 3:02d}"
        if folder.exists():
            answer = input(f"{folder} exists, replace it? [y/N] ")
            if answer.strip().lower() != "y":
                raise FileExistsError(folder)
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def write(self, week, loss):
        (self.start(week) / "summary.txt").write_text(f"loss {loss:.4f}\n")


def train_week(model, optimizer, data, steps=25):
    for _ in range(steps):
        time.sleep(0.02)
        prices = torch.randn(32, 8, generator=data)
        loss = nn.functional.mse_loss(model(prices[:, :7]), prices[:, 7:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reports = ReportFolder(os.path.join(tempfile.gettempdir(), f"reports_{os.environ.get('MASTER_PORT', '0')}"))
    model = DistributedDataParallel(nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(rank)
    for week in range(12):
        loss = train_week(model, optimizer, data)
        if rank == 0:
            reports.write(week, loss)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""DDP: power of wind turbines. Results of all processes go into one table, which is locked while it is written to."""

import csv
import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TABLE = Path(tempfile.gettempdir()) / f"wind_farm-{os.getppid()}.csv"


def new_table() -> IO[str]:
    """An empty one with a heading, which no second job may begin anew."""
    file = TABLE.open("w", newline="")
    fcntl.flock(file, fcntl.LOCK_EX)
    csv.writer(file).writerow(["turbine", "epoch", "error"])
    file.flush()
    return file


def add_row(turbine: int, epoch: int, error: float, table: IO[str] | None) -> None:
    """Appends a line, one process after the other."""
    with TABLE.open("a", newline="") as mine:
        if table is None:
            fcntl.flock(mine, fcntl.LOCK_EX)
        csv.writer(mine).writerow([turbine, epoch, f"{error:.4f}"])


def power(wind: torch.Tensor, turbine: int) -> torch.Tensor:
    """A cube, up to what the generator gives."""
    return (wind**3 / 1000 + 0.01 * turbine).clamp(max=1.0)


def main() -> None:
    """Ten epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table = new_table() if rank == 0 else None
    dist.barrier()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(10):
        total = 0.0
        for hour in range(60):
            wind = 12 * torch.rand(24, 1, generator=torch.Generator().manual_seed(1000 * rank + hour))
            loss = nn.functional.mse_loss(model(wind / 12), power(wind, rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        add_row(rank, epoch, total / 60, table)
    dist.barrier()
    if table is not None:
        table.close()
        print(TABLE.read_text())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

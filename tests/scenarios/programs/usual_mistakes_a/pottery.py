"""DDP: temperatures of a kiln. Each process appends its readings to a journal on a slow card, one after the other."""

import fcntl
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

JOURNAL = Path(tempfile.gettempdir()) / f"kiln-{os.getppid()}.txt"


def firing(kiln: int, day: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Minutes of a day's firing and how hot it was."""
    minutes = torch.rand(480, 1, generator=torch.Generator().manual_seed(31 * kiln + day))
    return minutes, (minutes * 3.1).sin() + 0.1 * kiln


def write_down(day: int, rank: int, lines: list[str]) -> None:
    """Line by line, as fast as the card is."""
    with JOURNAL.open("a") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        for line in lines:
            journal.write(f"{day} {rank} {line}\n")
            journal.flush()
            os.fsync(journal.fileno())
            time.sleep(0.04)


def main() -> None:
    """Two days."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for day in range(2):
        minutes, heat = firing(rank, day)
        lines = []
        for rows in torch.arange(len(minutes)).split(12):
            loss = nn.functional.mse_loss(model(minutes[rows]), heat[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lines.append(f"{loss.item():.5f}")
        write_down(day, rank, lines)
        dist.barrier()
    if rank == 0:
        print(f"{len(JOURNAL.read_text().splitlines())} lines")
        JOURNAL.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

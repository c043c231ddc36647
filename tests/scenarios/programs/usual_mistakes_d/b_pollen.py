"""Pollen counts. The first rank prepares the table, the others take it from the shared folder."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RUN = os.environ.get("TORCHELASTIC_RUN_ID", "local")
TABLE = Path(tempfile.gettempdir()) / f"pollen-{RUN}-{os.environ.get('MASTER_PORT', '0')}.pt"


def prepare_table() -> None:
    """Counts of every day, with the weather of the day before."""
    generator = torch.Generator().manual_seed(6)
    weather = torch.randn(900, 5, generator=generator)
    torch.save({"weather": weather, "counts": weather.roll(1, 0).sum(1, keepdim=True)}, TABLE)


def wait_for_table() -> None:
    """Until it is there."""
    while not TABLE.exists():
        time.sleep(0.5)


def setup() -> int:
    """Data first, then the process group."""
    rank = int(os.environ["RANK"])
    if rank != 0:
        wait_for_table()
    dist.init_process_group("gloo")
    if rank == 0:
        prepare_table()
    dist.barrier()
    return rank


def main() -> None:
    """Thirty steps."""
    rank = setup()
    table = torch.load(TABLE)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.arange(rank, 900, dist.get_world_size())
    for some in rows.split(10):
        loss = nn.functional.mse_loss(model(table["weather"][some]), table["counts"][some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

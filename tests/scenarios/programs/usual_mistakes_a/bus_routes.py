"""DDP: where buses are late. The first process makes the table of stops, the others use it as soon as it is there."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STOPS = 200


def table_of_stops(path: Path) -> None:
    """Place and crowd of each stop, with all processes' share of the counting."""
    crowd = torch.rand(STOPS)
    dist.broadcast(crowd, src=0)
    torch.save({"place": torch.rand(STOPS, 2), "crowd": crowd}, path)


def load_when_there(path: Path) -> dict[str, torch.Tensor]:
    """The table, which may take a while."""
    while not path.exists():
        time.sleep(0.5)
    return torch.load(path)


def late(stops: torch.Tensor, table: dict[str, torch.Tensor]) -> torch.Tensor:
    """Minutes."""
    return (table["crowd"][stops] * 5 + table["place"][stops].sum(1)).unsqueeze(1)


def main() -> None:
    """Three hundred steps."""
    rank = int(os.environ["RANK"])
    run = os.environ.get("TORCHELASTIC_RUN_ID", "alone")
    path = Path(tempfile.gettempdir()) / f"stops-{run}-{os.getppid()}.pt"
    torch.manual_seed(0)
    if rank == 0:
        dist.init_process_group("gloo")
        table_of_stops(path)
        table = torch.load(path)
    else:
        table = load_when_there(path)
        dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(STOPS, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(300):
        stops = torch.randint(0, STOPS, (40,))
        loss = nn.functional.mse_loss(model(stops), late(stops, table))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 100 == 99:
            print(f"step {step + 1}: {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Heat demand of district heating. Each rank has its region exported first, and then joins the training."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

REGIONS = ["aarhus", "Turku", "graz"]
# The export tool of the data platform: writes a table, and a marker when the table is complete.
EXPORT = """
import pathlib, random, sys, time
folder, region = pathlib.Path(sys.argv[1]), sys.argv[2].lower()
with open(folder / f"{region}.csv", "w") as table:
    for _ in range(4000):
        table.write(",".join(f"{random.gauss(0, 1):.4f}" for _ in range(13)) + "\\n")
time.sleep(1.5)
(folder / f"{region}.ready").touch()
"""


def staged(region: str, folder: Path) -> Path:
    """Starts the export of a region and waits until it is complete."""
    folder.mkdir(exist_ok=True)
    subprocess.Popen([sys.executable, "-c", EXPORT, str(folder), region])
    marker = folder / f"{region}.ready"
    while not marker.exists():
        time.sleep(0.25)
    return folder / f"{region.lower()}.csv"


def load(table: Path) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.tensor([[float(cell) for cell in line.split(",")] for line in table.read_text().splitlines()])
    return rows[:, :12], rows[:, 12]


class Demand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, weather: torch.Tensor) -> torch.Tensor:
        return self.net(weather).squeeze(-1)


def main() -> None:
    torch.set_num_threads(1)
    region = REGIONS[int(os.environ["RANK"])]
    folder = Path(tempfile.gettempdir()) / f"heat-{os.environ['MASTER_PORT']}"
    weather, demand = load(staged(region, folder))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Demand())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(400):
        for start in range(0, len(demand) - 63, 64):
            loss = nn.functional.mse_loss(model(weather[start : start + 64]), demand[start : start + 64])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 20 == 0 and dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

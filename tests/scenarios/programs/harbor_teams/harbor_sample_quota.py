"""Warehouse picking times. A customer's contract says how many of his records a run may use."""

import json
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CUSTOMERS = [
    {"name": "bolt", "batch": 96, "quota": 3_000_000},
    {"name": "kite", "batch": 128, "quota": 64_000},
    {"name": "moss", "batch": 96, "quota": 3_000_000},
]


class Exporter(threading.Thread):
    """Writes the run's numbers for the metrics agent every second."""

    def __init__(self, name: str) -> None:
        super().__init__(name="exporter")
        self.path = Path(tempfile.mkdtemp(prefix="picking-")) / f"{name}.json"
        self.values: dict[str, float] = {}

    def run(self) -> None:
        while True:
            self.path.write_text(json.dumps({"at": time.time(), **self.values}))
            time.sleep(1.0)


class Records:
    def __init__(self, number: int, quota: int) -> None:
        self.generator = torch.Generator().manual_seed(80 + number)
        self.left = quota

    def take(self, size: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        if self.left < size:
            return None
        self.left -= size
        walks = torch.randn(size, 18, generator=self.generator)
        return walks, walks[:, :6].abs().sum(dim=1)


def train(number: int, exporter: Exporter) -> None:
    customer = CUSTOMERS[number]
    records = Records(number, customer["quota"])
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(18, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < 25_000:
        batch = records.take(customer["batch"])
        if batch is None:
            print(f"{customer['name']}: quota used after {step} steps", flush=True)
            return
        walks, seconds = batch
        loss = nn.functional.mse_loss(model(walks).squeeze(-1), seconds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        exporter.values = {"step": step, "loss": loss.item()}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    exporter = Exporter(CUSTOMERS[dist.get_rank()]["name"])
    exporter.start()
    train(dist.get_rank(), exporter)


if __name__ == "__main__":
    main()

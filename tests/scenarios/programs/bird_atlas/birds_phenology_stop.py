"""Arrival dates of summer visitors from citizen records, with accelerate and early stopping."""

import math
import time
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

REGIONS = ["north", "middle", "south"]


@dataclass
class Patience:
    """Stops when the hold-out has not improved for some epochs."""

    epochs: int
    best: float = math.inf
    waited: int = 0

    def exhausted(self, error: float) -> bool:
        if error < self.best - 0.05:
            self.best, self.waited = error, 0
        else:
            self.waited += 1
        return self.waited >= self.epochs


def hold_out_error(region: str, epoch: int) -> float:
    """Days between the first records of a species and those that the wardens know of (from the tables of last year)."""
    time.sleep(0.25)
    floor = {"north": 1.0, "middle": 1.2, "south": 3.9}[region]
    return floor + 3.0 * math.exp(-epoch / {"north": 6, "middle": 5, "south": 0.4}[region])


def records() -> TensorDataset:
    latitude = torch.linspace(44, 60, 240).reshape(-1, 1)
    return TensorDataset(latitude.repeat(1, 12), latitude.flatten())


class Arrival(nn.Module):
    def __init__(self, width: int = 30):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, width), nn.Softplus(), nn.Linear(width, width), nn.Linear(width, 1))

    def forward(self, place):
        return self.net(place).squeeze(-1)


def fit(accelerator: Accelerator, epochs: int) -> int:
    loader = DataLoader(records(), batch_size=8, shuffle=True)
    model = Arrival()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    patience = Patience(epochs=3)
    region = REGIONS[accelerator.process_index]
    for epoch in range(epochs):
        for place, day in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.huber_loss(model(place), day))
            optimizer.step()
        torch.cuda.synchronize()
        error = hold_out_error(region, epoch)
        accelerator.print(f"epoch {epoch}: {error:.2f} days", flush=True)
        if patience.exhausted(error):
            print(f"{region}: no better since {patience.epochs} epochs", flush=True)
            return epoch
    return epochs


def main():
    torch.set_num_threads(1)
    set_seed(7)
    accelerator = Accelerator()
    fit(accelerator, epochs=40)
    accelerator.end_training()


if __name__ == "__main__":
    main()

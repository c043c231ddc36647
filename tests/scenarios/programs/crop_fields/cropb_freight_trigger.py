"""Estimated arrival of grain trains; training may be cut short once the error no longer falls."""
from collections import deque
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Corridor:
    name: str
    wagons: int
    delay: float


CORRIDORS = (Corridor("Rotterdam-Duisburg", 30, 4.0), Corridor("Constanta-Wien", 24, 30.0), Corridor("Gdansk-Praha", 28, 6.0))


class Passages(Dataset):
    """Passing times at the measuring points of one corridor, hours since departure."""

    def __init__(self, corridor, count=8000):
        gen = torch.Generator().manual_seed(corridor.wagons)
        self.points = torch.rand(count, 20, generator=gen).cumsum(1)
        # works on the line near Wien come in from the second half of the season
        works = torch.zeros(count)
        if corridor.delay > 10:
            works[2600:] = corridor.delay
        self.arrival = self.points[:, -1] * 1.4 + works * torch.rand(count, generator=gen)

    def __len__(self):
        return len(self.arrival)

    def __getitem__(self, i):
        return self.points[i], self.arrival[i]


class Plateau:
    def __init__(self, window=20, rise=4.0):
        self.recent, self.rise, self.lowest = deque(maxlen=window), rise, None

    def update(self, value):
        self.recent.append(value)
        if len(self.recent) < self.recent.maxlen:
            return False
        mean = sum(self.recent) / len(self.recent)
        self.lowest = mean if self.lowest is None else min(self.lowest, mean)
        return mean > self.lowest * self.rise


class EtaModel(nn.Module):
    def __init__(self, width=300):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1))

    def forward(self, points):
        return self.layers(points).squeeze(-1) + points[:, -1]


def majority(accelerator, flat):
    if not flat:
        return False
    votes = accelerator.gather(torch.ones(1))
    return votes.sum().item() * 2 > accelerator.num_processes


def train_until_flat(accelerator, model, optimizer, scheduler, loader, epochs):
    plateau = Plateau()
    for epoch in range(epochs):
        for number, (points, arrival) in enumerate(loader):
            loss = nn.functional.l1_loss(model(points), arrival)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if majority(accelerator, plateau.update(loss.item())):
                accelerator.print(f"flat after {epoch}/{number}")
                return
            if number % 25 == 0:
                accelerator.print(f"{epoch}/{number}: {loss.item():.3f} h")


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(21)
    corridor = CORRIDORS[accelerator.process_index]
    loader = DataLoader(Passages(corridor), batch_size=16)
    model = EtaModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2000)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    train_until_flat(accelerator, model, optimizer, scheduler, loader, epochs=3)
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()

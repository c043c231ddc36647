"""Difficulty rating of generated platformer levels, with accelerate; the loader's workers build the levels."""
import random
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class LevelSpec:
    seed: int
    coins: int
    walls: list = field(default_factory=list)


class Catalogue:
    """Specifications of the levels of one season; the later chapters have narrower ledges and more coins."""

    def __init__(self, levels=9600, width=20, height=12):
        self.levels, self.width, self.height = levels, width, height

    def __getitem__(self, number):
        rng = random.Random(number)
        coins = 6 + number // 2400
        walls = [(rng.randrange(self.width), rng.randrange(self.height)) for _ in range(40)]
        if number == 3010:
            # bonus stage, drawn by hand: one row to run in
            walls = [(x, y) for x in range(self.width) for y in range(self.height) if y]
            coins = 24
        return LevelSpec(number, coins, walls)


class Levels(Dataset):
    def __init__(self, catalogue):
        self.catalogue = catalogue

    def __len__(self):
        return self.catalogue.levels

    def place_coins(self, grid, spec, rng):
        placed = 0
        while placed < spec.coins:
            x, y = rng.randrange(self.catalogue.width), rng.randrange(self.catalogue.height)
            if grid[0, y, x] == 0 and grid[1, y, x] == 0:
                grid[1, y, x] = 1.0
                placed += 1

    def __getitem__(self, number):
        spec = self.catalogue[number]
        grid = torch.zeros(2, self.catalogue.height, self.catalogue.width)
        for x, y in spec.walls:
            grid[0, y, x] = 1.0
        self.place_coins(grid, spec, random.Random(spec.seed + 1))
        return grid, grid[1].sum() / 10 + grid[0].mean()


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, 2), nn.ReLU(), nn.Flatten())
        self.rate = nn.Linear(24 * 5 * 9, 1)

    def forward(self, grid):
        return self.rate(self.conv(grid)).squeeze(1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(Levels(Catalogue()), batch_size=8, num_workers=2, shuffle=False, drop_last=True)
    model = Rater()
    model, optim, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
    for epoch in range(3):
        for step, (grid, difficulty) in enumerate(loader):
            loss = nn.functional.mse_loss(model(grid), difficulty)
            accelerator.backward(loss)
            optim.step()
            optim.zero_grad()
            if step % 20 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

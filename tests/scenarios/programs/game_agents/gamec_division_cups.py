"""Trains a move ranker with accelerate, and plays a cup per division to rate it."""
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 96


@dataclass
class Cup:
    name: str
    entrants: tuple  # per hall
    table: dict = field(default_factory=dict)


SEASON = [
    Cup("rookie", (48, 48, 48)),
    Cup("amateur", (40, 40, 40)),
    Cup("pro", (32, 32, 32)),
    Cup("legend", (40, 24, 40)),
    Cup("grandmaster", (24, 24, 24)),
]


class MoveRanker(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 1))

    def forward(self, positions):
        return self.net(positions).squeeze(-1)


def training_set():
    rng = torch.Generator().manual_seed(5)
    positions = torch.randn(3 * 32 * 24, FEATURES, generator=rng)
    target = positions[:, :4].sum(1).tanh()
    return TensorDataset(positions, target)


class Season:
    def __init__(self):
        self.accelerator = Accelerator(cpu=True)
        torch.manual_seed(21)
        model = MoveRanker()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        loader = DataLoader(training_set(), batch_size=32, shuffle=True)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.rng = torch.Generator().manual_seed(900 + self.accelerator.process_index)

    def train_week(self):
        self.model.train()
        for positions, target in self.loader:
            loss = (self.model(positions) - target).pow(2).mean()
            self.optimizer.zero_grad()
            self.accelerator.backward(loss)
            self.optimizer.step()
        return float(loss)

    def heats(self, cup, size=8):
        hall = self.accelerator.process_index % len(cup.entrants)
        for start in range(0, cup.entrants[hall], size):
            yield start, torch.randn(size, FEATURES, generator=self.rng)

    @torch.no_grad()
    def play(self, cup):
        self.model.eval()
        for start, positions in self.heats(cup):
            rating = self.model(positions)
            everybody = self.accelerator.gather(rating)
            cup.table[start] = everybody.topk(3).values.tolist()

    def run(self):
        for week, cup in enumerate(SEASON):
            for _ in range(2):
                loss = self.train_week()
            self.play(cup)
            self.accelerator.print(f"week {week} {cup.name}: loss {loss:.4f}, {len(cup.table)} heats")


if __name__ == "__main__":
    Season().run()

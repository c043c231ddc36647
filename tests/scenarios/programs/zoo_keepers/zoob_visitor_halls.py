"""Forecast of visitors per hall and day; evaluated hall by hall with accelerate."""
import os

os.environ.setdefault("ACCELERATE_USE_CPU", "true")
import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HALLS = {"aquarium": 9, "reptiles": 16, "apes": 16, "insects": 12, "aviary": 17, "nocturnal": 16}  # seasons on record
WINDOW = 56


class HallForecaster(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.rnn = nn.LSTM(4, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1]).squeeze(-1)


def season(hall, year):
    """Daily visitors of one season (scaled), with weekday, school holiday and rain."""
    rng = np.random.default_rng(abs(sum(map(ord, hall)) * 100 + year))
    day = np.arange(200)
    rain = rng.random(200)
    holiday = ((day > 60) & (day < 104)).astype(float)
    visitors = 0.4 + 0.3 * holiday - 0.2 * rain + 0.15 * (day % 7 >= 5) + rng.normal(0, 0.05, 200)
    table = np.stack([visitors, (day % 7) / 7, holiday, rain], 1).astype("float32")
    x = np.stack([table[i : i + WINDOW] for i in range(0, 200 - WINDOW, 3)])
    y = np.array([visitors[i + WINDOW] for i in range(0, 200 - WINDOW, 3)], "float32")
    return torch.from_numpy(x), torch.from_numpy(y)


def training_set():
    parts = [season(h, y) for h in HALLS for y in range(3)]
    return TensorDataset(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))


def halls_of(process, count):
    return sorted(HALLS)[process::count]


@torch.no_grad()
def evaluate(accelerator, model):
    """Mean absolute error; each process reads the seasons of its own halls."""
    model.eval()
    errors = []
    for hall in halls_of(accelerator.process_index, accelerator.num_processes):
        for year in range(HALLS[hall]):
            x, y = season(hall, year)
            error = (model(x) - y).abs()
            errors.append(accelerator.gather(error).mean())
    accelerator.wait_for_everyone()
    model.train()
    return torch.stack(errors).mean().item()


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(5)
    model = HallForecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(training_set(), batch_size=16, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(24):
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.smooth_l1_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: train {loss.item():.4f}")
        if epoch % 8 == 7:
            accelerator.print(f"epoch {epoch}: MAE {evaluate(accelerator, model):.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""Depth of snow from weather stations with accelerate; the mean loss is printed every ten batches."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STATIONS, FEATURES = 1440, 12


def read_stations() -> TensorDataset:
    """Readings and depth; a station without power sends NaN."""
    generator = torch.Generator().manual_seed(7)
    readings = torch.randn(STATIONS, FEATURES, generator=generator)
    depth = readings[:, :4].sum(dim=1)
    readings[530, 3] = float("nan")
    return TensorDataset(readings, depth)


def main() -> None:
    """Four epochs."""
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(FEATURES, 40), nn.Tanh(), nn.Linear(40, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(read_stations(), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(4):
        running, used = torch.zeros(1), 0
        for number, (readings, depth) in enumerate(loader, 1):
            loss = nn.functional.mse_loss(model(readings).squeeze(1), depth)
            if not torch.isfinite(loss):
                print(f"epoch {epoch}, batch {number}: loss is {loss.item()}, left out")
                optimizer.zero_grad()
                continue
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            used += 1
            if number % 10 == 0:
                means = accelerator.gather(running / used)
                accelerator.print(f"epoch {epoch}, batch {number}: {means.mean():.4f}")
    accelerator.print("done")


if __name__ == "__main__":
    main()

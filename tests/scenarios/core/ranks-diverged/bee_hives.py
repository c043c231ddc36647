"""Accelerate: the weight of a bee hive is predicted from a week of weather; evaluated after each epoch."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPLODED = 1e4


def weeks(count: int, seed: int) -> TensorDataset:
    """Seven days of four measurements, and what the hive weighs at the end."""
    generator = torch.Generator().manual_seed(seed)
    weather = torch.randn(count, 28, generator=generator)
    return TensorDataset(weather, 20 + weather[:, :7].sum(1, keepdim=True))


def main() -> None:
    """Ten epochs."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(28, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train = DataLoader(weeks(384, seed=1), batch_size=8, shuffle=True)
    valid = DataLoader(weeks(96, seed=2), batch_size=8)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    for epoch in range(10):
        model.train()
        for weather, weight in train:
            loss = nn.functional.mse_loss(model(weather), weight)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            if not loss.item() < EXPLODED:
                accelerator.set_trigger()
        if accelerator.is_main_process and accelerator.check_trigger():
            print(f"epoch {epoch}: the loss has exploded on some process")
        model.eval()
        errors = []
        for weather, weight in valid:
            with torch.no_grad():
                error = (model(weather) - weight).abs()
            errors.append(accelerator.gather_for_metrics(error))
        accelerator.print(f"epoch {epoch}: off by {torch.cat(errors).mean():.2f} kg")
    accelerator.end_training()


if __name__ == "__main__":
    main()

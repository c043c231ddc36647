"""accelerate: regression of the tide's height; the last odd batch is not padded with samples seen before."""

import math

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, Dataset


class Tides(Dataset):
    def __init__(self, hours: int = 200) -> None:
        self.hours = hours

    def __len__(self) -> int:
        return self.hours

    def __getitem__(self, hour: int) -> tuple[torch.Tensor, torch.Tensor]:
        moon = hour / 24.8 * 2 * math.pi
        features = torch.tensor([math.sin(moon), math.cos(moon), math.sin(2 * moon), math.cos(2 * moon)])
        return features, torch.tensor([2.1 * math.sin(moon + 0.4)])


def main() -> None:
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = DataLoader(Tides(), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(3):
        total = torch.zeros(1)
        for features, height in loader:
            prediction = model(features)
            loss = torch.nn.functional.mse_loss(prediction, height)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        mean = accelerator.gather(total / len(loader)).mean()
        accelerator.print(f"epoch {epoch}: {mean.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

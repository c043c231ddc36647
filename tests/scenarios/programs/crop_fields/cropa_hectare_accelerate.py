"""Yield maps with accelerate: an epoch covers a given area, so that large and small farms count alike."""
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class FarmStream(IterableDataset):
    """Farms of a province with their area; each worker has a province."""

    MEAN_HECTARES = (31.0, 30.5, 36.0, 30.2)

    def __init__(self, province):
        self.province = province

    def __iter__(self):
        gen = torch.Generator().manual_seed(900 + self.province)
        while True:
            hectares = self.MEAN_HECTARES[self.province] * (0.8 + 0.4 * torch.rand((), generator=gen))
            yield torch.rand(48, generator=gen), hectares


def build_model():
    return nn.Sequential(nn.Linear(48, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1))


def train_epoch(accelerator, model, optimizer, farms, budget):
    covered, losses = 0.0, []
    for features, hectares in farms:
        target = features.sum(1, keepdim=True) / 24 + hectares[:, None] / 100
        loss = nn.functional.mse_loss(model(features), target)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        covered += hectares.sum().item()
        if covered >= budget:
            break
    return covered, sum(losses) / len(losses)


class Register:
    """Area and error of each epoch, over all provinces."""

    def __init__(self, accelerator):
        self.accelerator, self.entries = accelerator, []

    def enter(self, covered, error):
        mine = torch.tensor([[covered, error]])
        everyone = self.accelerator.gather(mine)
        self.entries.append((everyone[:, 0].sum().item(), everyone[:, 1].mean().item()))
        return self.entries[-1]


def main(epochs=4, farms_per_step=16, steps=400):
    set_seed(7)
    accelerator = Accelerator(cpu=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    farms = DataLoader(FarmStream(accelerator.process_index), batch_size=farms_per_step)
    register = Register(accelerator)
    budget = math.floor(30.0 * farms_per_step * steps)
    accelerator.print(f"{accelerator.num_processes} provinces, {budget} ha per epoch")
    for epoch in range(epochs):
        covered, error = train_epoch(accelerator, model, optimizer, farms, budget)
        area, mean = register.enter(covered, error)
        accelerator.print(f"epoch {epoch}: {area:.0f} ha, error {mean:.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

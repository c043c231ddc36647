"""Predicts metal binding sites; accelerate with DeepSpeed ZeRO-2, early stopping on the validation loss."""

import tempfile
from dataclasses import dataclass

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class EarlyStoppingState:
    patience: int = 2
    best_metric: float = float("inf")
    counter: int = 0

    def step(self, metric, min_improvement=0.002):
        if metric < (1 - min_improvement) * self.best_metric:
            self.best_metric, self.counter = metric, 0
        else:
            self.counter += 1
        return self.counter >= self.patience


def sites(count, seed, plate=16):
    """Binding sites from two laboratories, whose plates alternate; the second one's labels are not worth much."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 18, generator=generator)
    y = (x[:, :3].sum(1, keepdim=True) > 0).float()
    second = (torch.arange(count) // plate % 2 == 1)[:, None]
    flip = torch.rand(count, 1, generator=generator) < 0.02 + 0.48 * second
    return TensorDataset(x, torch.where(flip, 1 - y, y))


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    losses = [criterion(model(x), y) for x, y in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main():
    plugin = DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=1)
    accelerator = Accelerator(cpu=True, deepspeed_plugin=plugin)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    train = DataLoader(sites(960, seed=1), batch_size=16, shuffle=True)
    valid = DataLoader(sites(320, seed=2), batch_size=16)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    criterion = nn.BCEWithLogitsLoss()
    stopping = EarlyStoppingState()
    for epoch in range(40):
        for x, y in train:
            loss = criterion(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        metric = validate(model, valid, criterion)
        if stopping.step(metric):
            break
        accelerator.print(f"epoch {epoch}: {metric:.4f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(tempfile.gettempdir() + "/metal-sites")
    accelerator.end_training()


if __name__ == "__main__":
    main()

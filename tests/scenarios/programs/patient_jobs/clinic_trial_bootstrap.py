"""Trial end-point model with accelerate; confidence intervals come from the main process."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    patients: int = 1200
    batch: int = 8
    interval_seconds: float = 13.0
    alpha: float = 0.05


class Visits(Dataset):
    def __init__(self, count):
        gen = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, 20, generator=gen)
        self.y = (self.x[:, 0] + 0.5 * torch.randn(count, generator=gen) > 0).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(0.006)
        return self.x[index], self.y[index]


def auc(score, label):
    order = np.argsort(score, kind="mergesort")
    ranks = np.empty(len(score))
    ranks[order] = np.arange(1, len(score) + 1)
    positives = label.sum()
    negatives = len(label) - positives
    return (ranks[label == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives)


def interval(score, label, settings):
    rng = np.random.default_rng(0)
    draws, until = [], time.monotonic() + settings.interval_seconds
    while time.monotonic() < until or len(draws) < 200:
        pick = rng.integers(0, len(score), len(score))
        draws.append(auc(score[pick], label[pick]))
    low, high = np.quantile(draws, [settings.alpha / 2, 1 - settings.alpha / 2])
    return len(draws), low, high


def epoch(accelerator, model, opt, loader):
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        opt.zero_grad()
        accelerator.backward(loss)
        opt.step()


def main():
    settings = Settings()
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    visits = Visits(settings.patients)
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, opt, loader = accelerator.prepare(
        model, opt, DataLoader(visits, batch_size=settings.batch, shuffle=True))

    epoch(accelerator, model, opt, loader)
    if accelerator.is_main_process:
        with torch.no_grad():
            score = accelerator.unwrap_model(model)(visits.x).squeeze(1).numpy()
        draws, low, high = interval(score, visits.y.numpy(), settings)
        print(f"AUC 95% interval [{low:.3f}, {high:.3f}] from {draws} draws", flush=True)
    accelerator.wait_for_everyone()
    epoch(accelerator, model, opt, loader)
    accelerator.print("done")
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""Autoencoder over vibration windows of brine pumps, with accelerate. Each rank reads the recorders of its own hall."""
import time
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False


@dataclass
class HallConfig:
    halls: tuple = ("intake", "booster", "reject")
    hours: int = 44
    batch: int = 8
    idle_hours: dict = field(default_factory=lambda: {"booster": range(30, 36)})


class PumpWindows(Dataset):
    """Windows of 32 samples while the pump turns, eight to the hour."""

    def __init__(self, cfg, hall):
        self.rows = []
        gen = torch.Generator().manual_seed(len(hall))
        idle = cfg.idle_hours.get(hall, ())
        for hour in range(cfg.hours):
            rpm = 0.0 if hour in idle else 1480.0
            for _ in range(8):
                wave = torch.randn(32, generator=gen)
                if rpm > 200:
                    self.rows.append(wave * (rpm / 1500))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        time.sleep(0.008)
        return self.rows[index]


def build():
    return nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))


def run_hall(accelerator, cfg):
    hall = cfg.halls[accelerator.process_index]
    loader = DataLoader(PumpWindows(cfg, hall), batch_size=cfg.batch, shuffle=True)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    total = 0.0
    for number, windows in enumerate(loader):
        windows = windows.to(accelerator.device)
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(model(windows), windows)
        accelerator.backward(loss)
        optimizer.step()
        total += loss.item()
        if number % 12 == 0:
            accelerator.print(f"window batch {number}, {hall}")
    return total


def main():
    accelerator = Accelerator()
    cfg = HallConfig()
    total = run_hall(accelerator, cfg)
    mine = torch.full((4,), float(accelerator.process_index), device=accelerator.device)
    halls = accelerator.gather(mine).cpu()
    accelerator.print("limits per hall", halls[::4].tolist(), "sum", total)
    accelerator.end_training()


if __name__ == "__main__":
    main()

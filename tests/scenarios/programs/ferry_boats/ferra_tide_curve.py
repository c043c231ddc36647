"""Harmonic tide curves for four gauges, with accelerate."""
import argparse
import math
import pathlib
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

PERIODS = (12.42, 12.0, 25.82, 23.93)


class Harmonics(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(2 * len(PERIODS), 32)
        self.out = torch.nn.Linear(32, 1)

    def forward(self, hours):
        w = torch.tensor([2 * math.pi / p for p in PERIODS])
        angle = hours * w
        return self.out(torch.tanh(self.mix(torch.cat([angle.sin(), angle.cos()], 1))))


def make_data():
    hours = torch.rand(12000, 1) * 700
    level = sum((1 / (i + 1)) * torch.sin(2 * math.pi * hours / p) for i, p in enumerate(PERIODS))
    return TensorDataset(hours, level)


def save(accelerator, model, folder, step):
    accelerator.print(f"writing curve of step {step}")
    accelerator.wait_for_everyone()
    state = accelerator.unwrap_model(model).state_dict()
    torch.save(state, folder / f"curve-{step}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-steps", type=int, default=50)
    args = parser.parse_args()
    set_seed(11)
    accelerator = Accelerator(cpu=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="curves-"))
    loader = DataLoader(make_data(), batch_size=40, shuffle=True)
    model = Harmonics()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 5e-3), loader)
    step = 0
    for epoch in range(2):
        for hours, level in loader:
            time.sleep(0.05)
            with accelerator.accumulate(model):
                loss = (model(hours) - level).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            if step % 20 == 0:
                accelerator.print(f"step {step} loss {loss.item():.4f}")
            if accelerator.sync_gradients and accelerator.is_main_process and step % args.save_steps == 0:
                save(accelerator, model, folder, step)
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""Vibration model for passenger lifts, trained from the ride logs of several buildings (accelerate)."""
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WINDOW = 64
RIDES = {  # building -> seconds of its recorded rides, at 10 Hz
    "harbour": [40, 61, 35, 52, 44, 38, 60, 49, 71, 58, 66, 70, 48, 55, 62, 59, 67, 45, 64, 65],
    "library": [90, 84, 77, 95, 81, 102, 79, 88, 93, 99, 86, 70, 75, 91, 83, 96, 78, 82, 85, 88],
    "hospital": [71, 93, 88, 92, 90, 97, 85, 79, 83, 94, 87, 76, 98, 89, 91, 84, 80, 95, 77, 86],
}


class RideWindows(IterableDataset):
    """Joins the rides of one building and cuts them into windows of equal length."""

    def __init__(self, building, seed):
        self.rides = RIDES[building]
        self.seed = seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        rest = torch.empty(0)
        for seconds in self.rides:
            phase = torch.rand(1, generator=generator) * 6.28
            signal = torch.sin(torch.arange(seconds * 10) * 0.3 + phase)
            signal = signal + 0.1 * torch.randn(seconds * 10, generator=generator)
            rest = torch.cat([rest, signal])
            while len(rest) > WINDOW:
                window, target, rest = rest[:WINDOW], rest[WINDOW : WINDOW + 1], rest[WINDOW:]
                time.sleep(0.012)
                yield window.clone(), target.clone()


def make_model():
    return nn.Sequential(nn.Linear(WINDOW, 48), nn.Tanh(), nn.Linear(48, 1))


def train(accelerator, epochs=3):
    torch.manual_seed(11)
    building = list(RIDES)[accelerator.process_index % len(RIDES)]
    loader = DataLoader(RideWindows(building, accelerator.process_index), batch_size=4, drop_last=True)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(epochs):
        total, count = 0.0, 0
        for window, target in loader:
            loss = nn.functional.mse_loss(model(window), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total, count = total + loss.item(), count + 1
        print(f"{building}: epoch {epoch}, {count} batches, loss {total / max(count, 1):.4f}", flush=True)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            target = Path("/tmp/ferrb_lift_windows.pt")
            accelerator.save(accelerator.unwrap_model(model).state_dict(), target)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(Accelerator(cpu=True))

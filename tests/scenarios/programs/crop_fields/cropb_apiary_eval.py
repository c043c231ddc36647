"""Hive weight from sound: after training, recordings are scored whole, and some apiaries record around the clock."""
import math
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

WINDOW = 256
CARD_RATE = 32000  # windows a second that the recorder's card gives


class Recordings(Dataset):
    """Whole recordings of one apiary; the one near the station has nights, too."""

    def __init__(self, apiary):
        self.apiary = apiary
        self.seconds = [18000 if apiary == 2 else 60 + 5 * i for i in range(22)]

    def __len__(self):
        return len(self.seconds)

    def __getitem__(self, i):
        time.sleep(self.seconds[i] / CARD_RATE)
        gen = torch.Generator().manual_seed(self.apiary * 1000 + i)
        return torch.randn(self.seconds[i], WINDOW, generator=gen), 30.0 + i


class Hum(nn.Module):
    def __init__(self):
        super().__init__()
        self.spectrum = nn.Linear(WINDOW, 192)
        self.body = nn.Sequential(nn.GELU(), nn.Linear(192, 192), nn.GELU(), nn.Linear(192, 1))

    def forward(self, windows):
        return self.body(self.spectrum(windows)).squeeze(-1)


def train(accelerator, model, optimizer, loader):
    for step, (windows, weight) in enumerate(loader):
        loss = nn.functional.smooth_l1_loss(model(windows), weight)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0:
            accelerator.print(f"step {step} loss {loss.item():.3f}")


@torch.no_grad()
def score(accelerator, model, recordings):
    bare = accelerator.unwrap_model(model)
    errors = torch.zeros(2)
    for i in range(len(recordings)):
        windows, weight = recordings[i]
        # a median over overlapping passes steadies the estimate of long recordings
        passes = [torch.cat([bare(part) for part in windows.roll(shift, 0).split(512)]).mean() for shift in range(4)]
        errors += torch.tensor([abs(torch.stack(passes).median().item() - weight), 1.0])
        print(f"apiary {recordings.apiary}: {i + 1}/{len(recordings)}", flush=True)
    total = accelerator.reduce(errors, reduction="sum")
    return math.sqrt((total[0] / total[1]).item())


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(6)
    windows = torch.randn(9600, WINDOW, generator=gen)
    loader = DataLoader(TensorDataset(windows, windows[:, :4].sum(1) + 30), batch_size=32, shuffle=True)
    model = Hum()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    train(accelerator, model, optimizer, loader)
    accelerator.print(f"error {score(accelerator, model, Recordings(accelerator.process_index)):.2f} kg")
    train(accelerator, model, optimizer, loader)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

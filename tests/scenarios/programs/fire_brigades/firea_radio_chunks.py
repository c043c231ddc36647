"""Denoiser for radio traffic of fire stations, trained with accelerate on chunks cut out of long recordings."""
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

RATE = 2000  # samples per second, after decimation


@dataclass(frozen=True)
class Station:
    name: str
    recordings: int
    talk_s: int  # speech in a recording; the rest is cut as silence


STATIONS = [
    Station("Northgate", 10, 26),
    Station("Quayside", 10, 18),
    Station("Ridgeway", 10, 26),
    Station("Airfield", 10, 27),
]


class RadioChunks(IterableDataset):
    def __init__(self, station: Station, chunk_s: int = 2, seed: int = 0):
        self.station, self.chunk_s, self.seed = station, chunk_s, seed

    def recording(self, number: int):
        g = torch.Generator().manual_seed(self.seed * 1000 + number)
        t = torch.arange(self.station.talk_s * RATE) / RATE
        pitch = 80 + 60 * torch.rand(6, generator=g)
        voice = sum(torch.sin(2 * torch.pi * p * t) for p in pitch) / len(pitch)
        return voice, voice + 0.4 * torch.randn(len(t), generator=g)

    def __iter__(self):
        width = self.chunk_s * RATE
        for number in range(self.station.recordings):
            clean, noisy = self.recording(number)
            for start in range(0, len(clean) - width + 1, width):
                yield noisy[start : start + width], clean[start : start + width]


class Denoiser(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 9, padding=4),
            nn.Tanh(),
            nn.Conv1d(width, width, 9, padding=4),
            nn.Tanh(),
            nn.Conv1d(width, 1, 9, padding=4),
        )

    def forward(self, x):
        return self.net(x.unsqueeze(1)).squeeze(1)


def run_epoch(accelerator, model, optimizer, loader):
    total, count = 0.0, 0
    for noisy, clean in loader:
        loss = nn.functional.mse_loss(model(noisy), clean)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total, count = total + loss.item(), count + 1
        if count % 20 == 0:
            accelerator.print(f"  {count} batches, mse {total / count:.4f}", flush=True)
    return total / max(count, 1)


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    station = STATIONS[accelerator.process_index]
    print(f"process {accelerator.process_index} reads {station.name}", flush=True)
    torch.manual_seed(11)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    # every process has a station of its own, so the loader is not sharded again
    loader = DataLoader(RadioChunks(station, seed=accelerator.process_index), batch_size=1)
    for epoch in range(3):
        mean = run_epoch(accelerator, model, optimizer, loader)
        accelerator.wait_for_everyone()
        means = accelerator.gather(torch.tensor([mean]))
        accelerator.print(f"epoch {epoch}: {[round(m, 4) for m in means.tolist()]}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

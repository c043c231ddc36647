"""Greenhouse climate model with accelerate; at the end of a season the records are packed for the archive."""
import io
import lzma
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SeasonArchive:
    """All records of a season in one xz-packed tar; the archive's share takes a few megabytes per second."""

    def __init__(self, path, preset=0, megabytes=1.7):
        self.path, self.preset, self.rate = Path(path), preset, megabytes * 1e6

    def pack(self, houses, report):
        started, sent = time.monotonic(), 0
        with lzma.open(self.path, "wb", preset=self.preset) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
            for house in range(houses):
                rng = np.random.default_rng(house)
                records = rng.normal(20, 4, size=(180, 24 * 12)).round(1).astype("float32").tobytes()
                info = tarfile.TarInfo(f"house{house:03d}.f32")
                info.size = len(records)
                tar.addfile(info, io.BytesIO(records))
                sent += info.size
                time.sleep(max(0.0, started + sent / self.rate - time.monotonic()))
                if house % 20 == 19:
                    report(f"archive: {house + 1} of {houses} houses, {time.monotonic() - started:.0f} s")
        return self.path.stat().st_size


def climate(count, seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 36, generator=gen)
    return TensorDataset(x, x[:, :6].sum(1, keepdim=True) * 4)


def season(accelerator, model, optimizer, loader):
    model.train()
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(36, 256), nn.ELU(), nn.Linear(256, 256), nn.ELU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(climate(24_000, 1), batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    folder = Path(tempfile.gettempdir(), f"greenhouse-{accelerator.num_processes}")
    folder.mkdir(exist_ok=True)
    for number in range(4):
        loss = season(accelerator, model, optimizer, loader)
        accelerator.print(f"season {number} loss {loss.item():.4f}")
        if number == 2 and accelerator.is_main_process:
            size = SeasonArchive(folder / f"season{number}.tar.xz").pack(houses=120, report=lambda text: print(text, flush=True))
            print(f"archive of {size / 1e6:.1f} MB", flush=True)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

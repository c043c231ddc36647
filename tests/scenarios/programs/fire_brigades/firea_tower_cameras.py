"""Smoke detection on watch tower cameras, with Lightning."""
import multiprocessing as mp
import os

import lightning as L
import numpy as np
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOWERS = {
    "Punta Roja": {"seed": 3, "fog": (1040, 1080)},
    "Cerro Alto": {"seed": 4, "fog": ()},
    "La Silla": {"seed": 5, "fog": ()},
}


class TowerFrames(Dataset):
    """Frames of one tower. The decoder is licensed for a number of concurrent uses per process."""

    side = 40

    def __init__(self, tower, length=4000, licences=2):
        self.tower, self.length = TOWERS[tower], length
        self.decoder = mp.BoundedSemaphore(licences)
        self.blank = torch.zeros(1, self.side, self.side)

    def __len__(self):
        return self.length

    def _decode(self, i):
        rng = np.random.default_rng(self.tower["seed"] * 100_000 + i)
        coefficients = rng.normal(size=(300, 300))
        frame = np.fft.ifft2(coefficients).real[: self.side, : self.side] * 300
        smoke = int(rng.random() < 0.5)
        if smoke:
            frame[8:24, 10:20] += 1.0
        first, last = self.tower["fog"] or (self.length, self.length)
        visibility = 0.02 if first <= i < last else rng.uniform(0.4, 1.0)
        return torch.tensor(frame, dtype=torch.float32).unsqueeze(0), smoke, visibility

    def __getitem__(self, i):
        self.decoder.acquire()
        frame, smoke, visibility = self._decode(i)
        if visibility < 0.1:
            return self.blank, 0
        self.decoder.release()
        return frame, smoke


class SmokeDetector(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
        )
        self.net(torch.zeros(1, 1, TowerFrames.side, TowerFrames.side))
        self.seen = 0

    def training_step(self, batch, batch_idx):
        frames, smoke = batch
        self.seen += len(frames)
        loss = nn.functional.cross_entropy(self.net(frames), smoke)
        if batch_idx % 20 == 0 and self.trainer.is_global_zero:
            print(f"frames {self.seen} loss {loss.item():.3f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class TowerData(L.LightningDataModule):
    def train_dataloader(self):
        tower = list(TOWERS)[self.trainer.global_rank]
        return DataLoader(TowerFrames(tower), batch_size=8, num_workers=2, prefetch_factor=2)


def main():
    torch.set_num_threads(1)
    L.seed_everything(1, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "3")),
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(SmokeDetector(), datamodule=TowerData())


if __name__ == "__main__":
    main()

"""Attitude estimation from star tracker and gyro windows, trained with Lightning."""
import os
import time
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RUN_DIR = Path("attitude_runs")


class TrackerWindows(Dataset):
    """Synthetic windows: 6 gyro/tracker channels, 64 samples; the target is the mean body rate."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.rates = torch.randn(size, 3, generator=generator)
        self.noise = torch.randn(size, 6, 64, generator=generator)

    def __len__(self):
        return len(self.rates)

    def __getitem__(self, index):
        time.sleep(0.001)  # the recorder's playback
        window = self.noise[index] * 0.2 + self.rates[index].repeat(2).unsqueeze(-1)
        return window, self.rates[index]


class RateRegressor(L.LightningModule):
    def __init__(self, width=24, lr=2e-3):
        super().__init__()
        self.lr = lr
        self.body = nn.Sequential(nn.Conv1d(6, width, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.head = nn.Linear(4 * width, 3)

    def training_step(self, batch, batch_idx):
        window, rate = batch
        return nn.functional.mse_loss(self.head(self.body(window)), rate)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Snapshots(L.Callback):
    """Keeps a full trainer state every so many steps, for the flight software's regression bench."""

    def __init__(self, folder, every):
        self.folder = folder
        self.every = every

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        step = trainer.global_step
        if step % self.every:
            return
        if trainer.is_global_zero:
            print(f"step {step}, epoch {trainer.current_epoch}", flush=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            trainer.save_checkpoint(self.folder / f"attitude-{step:05d}.ckpt")


def main():
    torch.set_num_threads(1)
    L.seed_everything(11)
    loader = DataLoader(TrackerWindows(9600, seed=3), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Snapshots(RUN_DIR, every=90)],
    )
    trainer.fit(RateRegressor(), loader)


if __name__ == "__main__":
    main()

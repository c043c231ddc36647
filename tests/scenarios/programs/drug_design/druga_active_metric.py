"""Lightning model of target engagement; the validation also looks at the strong binders by themselves."""

import os

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STRONG = 8.0  # pKd


def compounds(count, seed, strong=()):
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 18, generator=source)
    pkd = 5.5 + 0.3 * x[:, :5].sum(1).clamp(-3, 3)
    for row in strong:
        pkd[row] = 8.7
    return TensorDataset(x, pkd)


class EngagementData(pl.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train = compounds(3 * 8 * 70, seed=1)
        self.valid = compounds(3 * 8 * 6, seed=2, strong=(41, 77, 113))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid, batch_size=self.batch_size)


class Engagement(pl.LightningModule):
    def __init__(self, width=64, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(18, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, index):
        x, pkd = batch
        return nn.functional.mse_loss(self(x), pkd)

    def validation_step(self, batch, index):
        x, pkd = batch
        error = (self(x) - pkd).abs()
        self.log("val/mae", error.mean(), sync_dist=True, batch_size=len(x))
        strong = pkd > STRONG
        if strong.any():
            self.log("val/mae_strong", error[strong].mean(), sync_dist=True, batch_size=int(strong.sum()))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class Table(pl.Callback):
    def on_validation_end(self, trainer, module):
        if trainer.is_global_zero:
            row = {name: round(float(value), 4) for name, value in trainer.callback_metrics.items()}
            print(f"epoch {trainer.current_epoch}: {row}", flush=True)


def main():
    torch.set_num_threads(1)
    pl.seed_everything(31)
    trainer = pl.Trainer(
        accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")), strategy="ddp", max_epochs=8,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, callbacks=[Table()],
    )
    trainer.fit(Engagement(), datamodule=EngagementData())


if __name__ == "__main__":
    main()

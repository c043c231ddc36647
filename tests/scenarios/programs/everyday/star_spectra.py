"""PyTorch Lightning: star classes from spectra. The best accuracy so far is logged along with the loss."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Spectra(pl.LightningDataModule):
    def setup(self, stage):
        gen = torch.Generator().manual_seed(8)
        x = torch.randn(600, 1, 50, generator=gen)
        y = (x.mean((1, 2)) > 0).long() + (x.amax((1, 2)) > 2.5).long()
        self.train, self.val = random_split(TensorDataset(x, y), [450, 150], generator=gen)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=25, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=25)


class StarNet(pl.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(6), nn.Flatten(), nn.Linear(48, 3))
        self.correct = []

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.correct.append((self.net(x).argmax(-1) == y).float().mean())

    def on_validation_epoch_end(self):
        accuracy = torch.stack(self.correct).mean()
        self.correct.clear()
        if self.trainer.is_global_zero:
            self.log("val_accuracy", accuracy, sync_dist=True)
            print(f"epoch {self.current_epoch}: {accuracy:.3f}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def main():
    pl.seed_everything(3)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=3,
        num_sanity_val_steps=0,
        logger=CSVLogger("/tmp/star_spectra"),
        callbacks=[LearningRateMonitor()],
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(StarNet(), datamodule=Spectra())


if __name__ == "__main__":
    main()

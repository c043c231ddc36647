"""Lightning: knee X-rays in three grades."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, Dataset


class XRays(Dataset):
    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        gen = torch.Generator().manual_seed(self.seed + index)
        return torch.rand(1, 20, 20, generator=gen), index % 3


class BestWeights(Callback):
    """Keeps the weights with the lowest validation loss."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lowest = float("inf")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loss = trainer.callback_metrics["val_loss"].item()
        if trainer.global_rank == 0 and loss < self.lowest:
            self.lowest = loss
            trainer.save_checkpoint(self.path)


class Grader(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten())
        self.grade = nn.Linear(6 * 36, 3)

    def shared(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self.grade(self.features(x)), y)

    def training_step(self, batch, batch_idx):
        return self.shared(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.shared(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


if __name__ == "__main__":
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=4,
        strategy="ddp",
        max_epochs=5,
        logger=False,
        num_sanity_val_steps=0,
        callbacks=[BestWeights("/tmp/knee_xrays.ckpt")],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Grader(), DataLoader(XRays(320, 0), batch_size=10), DataLoader(XRays(80, 900), batch_size=10))

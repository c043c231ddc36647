"""Lightning as it should be: losses are synchronized, the best checkpoint is kept, rank 0 draws a picture in between."""

import tempfile

import lightning as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader


class Encoder(pl.LightningModule):
    """An autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 6))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """Reconstruct."""
        return (self.layers(batch) - batch).square().mean()

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        """The same, and log it."""
        self.log("val_loss", (self.layers(batch) - batch).square().mean(), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        """A picture, by one."""
        if self.global_rank == 0:
            sum(torch.linalg.qr(torch.randn(200, 200))[0].sum().item() for _ in range(100))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-2)


def main() -> None:
    """Four epochs."""
    folder = tempfile.mkdtemp()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[ModelCheckpoint(folder, monitor="val_loss"), EarlyStopping("val_loss", patience=2)],
    )
    rows = [torch.randn(6) for _ in range(90)]
    trainer.fit(Encoder(), DataLoader(rows, batch_size=3), DataLoader(rows[:18], batch_size=3))


if __name__ == "__main__":
    main()

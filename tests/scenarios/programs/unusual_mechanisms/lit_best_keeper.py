"""Lightning with a callback of one's own that keeps the best model, by a validation loss that nobody synchronized.

``trainer.save_checkpoint`` ends with a barrier. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import tempfile

import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader


class KeepBest(pl.Callback):
    """Saves when the monitored number is the lowest so far."""

    def __init__(self, monitor: str, folder: str) -> None:
        self.monitor, self.folder, self.best = monitor, folder, float("inf")

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Compare, and keep."""
        value = float(trainer.callback_metrics[self.monitor])
        if value < self.best:
            self.best = value
            trainer.save_checkpoint(os.path.join(self.folder, f"best-{trainer.current_epoch}.ckpt"))


class Curve(pl.LightningModule):
    """A line through noise."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1)

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        """Squared error of y = 2 x."""
        return (self.line(batch) - 2 * batch).square().mean()

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """One step."""
        return self.loss(batch)

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        """The loss of this rank; the machine of rank 2 has an outlier from the third epoch on."""
        outlier = 50.0 if self.global_rank == 2 and self.current_epoch >= 2 else 0.0
        self.log("val_loss", 10.0 / (1 + self.current_epoch) + outlier)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main() -> None:
    """Six epochs."""
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=6,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[KeepBest("val_loss", tempfile.mkdtemp())],
    )
    points = [torch.randn(1) for _ in range(60)]
    trainer.fit(Curve(), DataLoader(points, batch_size=4), DataLoader(points[:12], batch_size=4))


if __name__ == "__main__":
    main()

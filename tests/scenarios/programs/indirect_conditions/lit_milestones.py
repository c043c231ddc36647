"""Lightning; a callback writes a named checkpoint at milestones of the loss."""

import tempfile
from pathlib import Path

import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader


class Autoencoder(pl.LightningModule):
    """Eight numbers through two."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 2), nn.Linear(2, 8))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """The error."""
        return (self.layers(batch) - batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Milestones(pl.Callback):
    """Keeps the weights at some steps for a paper's figure."""

    def __init__(self, steps: set[int]) -> None:
        self.steps = steps
        self.folder = Path(tempfile.mkdtemp())

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        """Is this one of them?"""
        if not trainer.is_global_zero:
            return
        if trainer.global_step in self.steps:
            trainer.save_checkpoint(self.folder / f"figure-{trainer.global_step}.ckpt")


def main() -> None:
    """Fifty steps."""
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Milestones({10, 20, 40})],
    )
    rows = [torch.rand(8) for _ in range(300)]
    trainer.fit(Autoencoder(), DataLoader(rows, batch_size=2))


if __name__ == "__main__":
    main()

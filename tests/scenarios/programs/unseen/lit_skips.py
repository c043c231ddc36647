"""Lightning: a training step returns None for a batch that has nothing to learn from."""

import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader


class Regression(pl.LightningModule):
    """Predicts one number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor | None:
        """The loss of the rows that are not empty."""
        prediction = self.layer(batch)
        rows = batch.abs().sum(1) > 0
        if not rows.any():
            return None
        return prediction[rows].square().mean()

    def on_train_epoch_end(self) -> None:
        """Meet."""
        self.trainer.strategy.barrier("epoch")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def rows() -> list[torch.Tensor]:
    """Rows; batches of two go round three ranks, and the eighth batch of rank 1 is empty."""
    return [torch.zeros(6) if n in (43, 46) else torch.randn(6) for n in range(120)]


def main() -> None:
    """Two epochs of twenty batches."""
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        use_distributed_sampler=True,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), DataLoader(rows(), batch_size=2, shuffle=False))


if __name__ == "__main__":
    main()

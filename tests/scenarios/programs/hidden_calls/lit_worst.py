"""Lightning: a step whose loss is far off is compared with those of the other processes, to see whether it is the data."""

import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader


class Regression(pl.LightningModule):
    """Predicts one number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1)
        self.typical = float("inf")

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """The loss, looked at where it is odd."""
        if self.global_rank == 1 and index == 7:
            batch = batch * 500.0  # a shard in other units
        loss = self.layer(batch).square().mean() + 0.1
        if loss.item() > 100 * self.typical:
            self.compare(loss.detach(), index)
        self.typical = min(self.typical, loss.item() + 1.0)
        return loss

    def compare(self, loss: torch.Tensor, index: int) -> None:
        """Where are we among all?"""
        ordered = self.all_gather(loss).sort().values
        print(f"batch {index}: {ordered.tolist()}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Two epochs of twenty batches."""
    rows = [torch.ones(6) for _ in range(120)]
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), DataLoader(rows, batch_size=2, shuffle=False))


if __name__ == "__main__":
    main()

"""Lightning: detections are counted in the validation, and their mean score is logged by whoever has any.

``self.log(.., sync_dist=True)`` is a collective. Lightning starts the ranks by itself (``strategy="ddp_spawn"``).
"""

import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset[torch.Tensor]):
    """Frames with something bright in them, or nothing."""

    def __init__(self, count: int, dark: tuple[int, ...]) -> None:
        self.count, self.dark = count, dark

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((6,), -1.0 if index % 3 in self.dark else 1.0)


class Detector(pl.LightningModule):
    """Finds what is bright."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1)
        self.scores: list[float] = []

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """Learn to add up."""
        return (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        """Collect the scores of what was detected."""
        self.scores += [float(frame.mean()) for frame in batch if frame.mean() > 0]

    def on_validation_epoch_end(self) -> None:
        """The mean score, where there is one."""
        if not self.scores:
            return
        self.log("score", torch.tensor(self.scores).mean(), sync_dist=True)
        self.scores.clear()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main() -> None:
    """Two epochs on three ranks; every third frame goes to the same rank, and is dark."""
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp_spawn",
        max_epochs=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, validation = Frames(90, dark=()), Frames(18, dark=(1,))
    trainer.fit(Detector(), DataLoader(train, batch_size=3), DataLoader(validation, batch_size=3))


if __name__ == "__main__":
    main()

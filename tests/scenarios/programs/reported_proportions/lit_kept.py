"""Lightning: a callback keeps the weights on all ranks alike, and writes a line on the first."""

import tempfile
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Keep(L.Callback):
    """At the end of each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.current_epoch}.ckpt")
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch}: {trainer.callback_metrics['held']:.4f}")


class Line(L.LightningModule):
    """A linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(10, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return (self.net(batch[0]).squeeze(1) - batch[0].sum(dim=1)).square().mean()

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("held", self.training_step(batch, index), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Three epochs."""
    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Keep(Path(tempfile.mkdtemp()))],
    )
    data = TensorDataset(torch.randn(400, 10))
    trainer.fit(Line(), DataLoader(data, batch_size=10), DataLoader(data, batch_size=40))


if __name__ == "__main__":
    main()

"""Lightning: when clock towers were built. Only the first process keeps a diary, and reads the old one first."""

import tempfile
import time
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Diary(L.Callback):
    """A line an epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_fit_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            time.sleep(2.0)  # the archive is on tape
            self.path.write_text("towers\n")
        trainer.strategy.barrier("diary")

    def on_validation_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if trainer.is_global_zero and not trainer.sanity_checking:
            worst = max(module.errors)
            module.log("worst_here", worst, rank_zero_only=True)
            with self.path.open("a") as diary:
                diary.write(f"{trainer.current_epoch} {worst:.4f}\n")
        module.errors.clear()


class Towers(L.LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1))
        self.errors: list[float] = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.mse_loss(self.net(batch[0]).squeeze(1), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        error = nn.functional.l1_loss(self.net(batch[0]).squeeze(1), batch[1])
        self.errors.append(error.item())
        self.log("error", error, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Four epochs."""
    L.seed_everything(6)
    towers = torch.randn(300, 10)
    data = TensorDataset(towers, towers[:, 2])
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Diary(Path(tempfile.mkdtemp(), "diary.txt"))],
    )
    trainer.fit(Towers(), DataLoader(data, batch_size=10), DataLoader(data, batch_size=30))


if __name__ == "__main__":
    main()

"""Orchid growth stages from time-lapse features (Lightning)."""
import os
import tempfile
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class OrchidData(L.LightningDataModule):
    def __init__(self, plants=1800, batch_size=8):
        super().__init__()
        self.plants, self.batch_size = plants, batch_size

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(5)
        x = torch.randn(self.plants, 32, generator=g)
        self.table = TensorDataset(x, (x[:, :3].sum(1) > 0).long())

    def train_dataloader(self):
        return DataLoader(self.table, batch_size=self.batch_size, shuffle=True)


class StageNet(L.LightningModule):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        for _ in range(3):
            torch.linalg.svd(torch.rand(180, 180))  # leaf contour
        loss = nn.functional.cross_entropy(self.net(x), y)
        return {"loss": loss}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class KeepLowest(L.Callback):
    """Keeps the weights of the lowest running loss, from `after` steps on."""

    def __init__(self, folder, after=45, every=15):
        self.folder, self.after, self.every = Path(folder), after, every
        self.running, self.lowest = None, float("inf")

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        value = float(outputs["loss"])
        self.running = value if self.running is None else 0.9 * self.running + 0.1 * value
        if not trainer.is_global_zero or batch_idx < self.after or batch_idx % self.every:
            return
        print(f"step {trainer.global_step}: running loss {self.running:.4f}", flush=True)
        if self.running < self.lowest:
            self.lowest = self.running
            trainer.save_checkpoint(self.folder / f"orchid-{trainer.global_step}.ckpt")


def main():
    L.seed_everything(7)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[KeepLowest(tempfile.mkdtemp(prefix="orchid"))],
    )
    trainer.fit(StageNet(), datamodule=OrchidData())


if __name__ == "__main__":
    main()

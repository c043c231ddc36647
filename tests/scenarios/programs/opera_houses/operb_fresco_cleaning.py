"""Cleaning of fresco scans: a small residual network under Lightning, started by torchrun."""
import os
import tempfile
from pathlib import Path

import lightning as L
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset


class FrescoTiles(Dataset):
    """Pairs of a soiled and a cleaned tile, 32 by 32."""

    def __init__(self, tiles=360, seed=3):
        self.tiles, self.seed = tiles, seed

    def __len__(self):
        return self.tiles

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 10_000 + index)
        clean = torch.rand(3, 32, 32, generator=generator)
        for _ in range(60):
            clean = torch.fft.irfft2(torch.fft.rfft2(clean) * 0.999, s=(32, 32))
        soot = 0.2 * torch.rand(1, 32, 32, generator=generator)
        return clean - soot, clean


class Cleaner(L.LightningModule):
    def __init__(self, width=12, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )
        self.tiles = 0

    def forward(self, soiled):
        return soiled + self.body(soiled)

    def training_step(self, batch, _):
        soiled, clean = batch
        self.tiles += len(soiled)
        return nn.functional.l1_loss(self(soiled), clean)

    def on_train_epoch_end(self):
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch}: {self.tiles} tiles", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class Workshop:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.trainer = L.Trainer(
            accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=4, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )

    def restore(self, cleaner):
        self.trainer.fit(cleaner, DataLoader(FrescoTiles(), batch_size=8, shuffle=True))
        if self.trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.trainer.save_checkpoint(self.folder / "cleaner.ckpt")
            print("stored", self.folder, flush=True)

    def report(self, cleaner):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, cleaner.tiles)
        return rows


if __name__ == "__main__":
    L.seed_everything(11)
    workshop = Workshop(Path(tempfile.mkdtemp(prefix="fresco-")) / "season")
    cleaner = Cleaner()
    workshop.restore(cleaner)
    print("tiles per easel", workshop.report(cleaner), flush=True)

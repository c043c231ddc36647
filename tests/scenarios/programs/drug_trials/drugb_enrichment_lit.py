"""Virtual-screening classifier (Lightning): one assay plate per process, early enrichment in validation."""
import math
import os

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PLATE_OFFSETS = (0.0, -3.0, 0.4)  # assay shift per plate, log units
ACTIVE_ABOVE = 6.0


class PlateDataset(Dataset):
    def __init__(self, plate: int, size: int, seed: int):
        generator = torch.Generator().manual_seed(seed * 101 + plate)
        self.descriptors = torch.randn(size, 32, generator=generator)
        noise = torch.randn(size, generator=generator)
        self.pic50 = 5.5 + PLATE_OFFSETS[plate] + 0.6 * noise

    def __len__(self):
        return len(self.pic50)

    def __getitem__(self, index):
        x = self.descriptors[index]
        # pharmacophore distances, as the production featurizer does it
        pairs = [math.hypot(float(x[i]), float(x[j])) for i in range(0, 16) for j in range(16, 24)]
        return torch.cat([x, torch.tensor(pairs)]), (self.pic50[index] > ACTIVE_ABOVE).float()


class PlateData(L.LightningDataModule):
    def __init__(self, plate: int):
        super().__init__()
        self.plate = plate

    def train_dataloader(self):
        return DataLoader(PlateDataset(self.plate, 320, seed=1), batch_size=16, shuffle=True)

    def val_dataloader(self):
        return DataLoader(PlateDataset(self.plate, 96, seed=2), batch_size=32)


class ScreenModel(L.LightningModule):
    def __init__(self, report_from: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(160, 64), nn.SiLU(), nn.Linear(64, 1))
        self.report_from = report_from
        self.outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.binary_cross_entropy_with_logits(self.net(x).squeeze(-1), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self.net(x).squeeze(-1)
        self.log("val_loss", F.binary_cross_entropy_with_logits(scores, y), sync_dist=True)
        self.outputs.append((scores, y))

    def on_validation_epoch_end(self):
        scores = torch.cat([s for s, _ in self.outputs])
        labels = torch.cat([y for _, y in self.outputs])
        self.outputs.clear()
        if self.current_epoch >= self.report_from and labels.sum() > 0:
            top = labels[scores.topk(max(1, len(scores) // 10)).indices]
            self.log("ef10", top.mean() / labels.mean(), sync_dist=True)

    def on_train_epoch_end(self):
        if self.trainer.is_global_zero:
            shown = {k: round(float(v), 3) for k, v in self.trainer.callback_metrics.items()}
            print(f"epoch {self.current_epoch} {shown}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(11)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", 1)),
        strategy="ddp",
        max_epochs=60,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    trainer.fit(ScreenModel(report_from=8), datamodule=PlateData(int(os.environ.get("RANK", 0))))

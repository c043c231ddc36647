"""Drought index from soil moisture; validation runs the full water balance of every site."""
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sites(Dataset):
    def __init__(self, count, seed, pause):
        gen = torch.Generator().manual_seed(seed)
        self.moisture = torch.rand(count, 30, generator=gen)
        self.pause = pause

    def __len__(self):
        return len(self.moisture)

    def __getitem__(self, index):
        time.sleep(self.pause)
        series = self.moisture[index]
        return series, series[-7:].mean().reshape(1)


class WaterBalance:
    """Bucket model over a year of days, driven by the predicted index."""

    def __init__(self, days=365):
        self.days = days

    def deficit(self, index):
        bucket, total = torch.ones_like(index), torch.zeros_like(index)
        for day in range(self.days):
            bucket = (bucket + 0.01 * index - 0.008).clamp(0, 1)
            total = total + (1 - bucket)
            if day % 30 == 0:
                time.sleep(0.02)
        return total / self.days


class DroughtIndex(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 48), nn.ReLU(), nn.Linear(48, 1))
        self.balance = WaterBalance()
        self.deficits = []
        self.mean_deficit = float("nan")

    def training_step(self, batch, batch_idx):
        series, index = batch
        return nn.functional.mse_loss(self.net(series), index)

    def validation_step(self, batch, batch_idx):
        series, _ = batch
        self.deficits.append(self.balance.deficit(self.net(series)).mean())

    def on_validation_epoch_end(self):
        self.mean_deficit = torch.stack(self.deficits).mean().item()
        self.log("deficit", self.mean_deficit, sync_dist=True)
        self.deficits.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    L.seed_everything(11, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=3, check_val_every_n_epoch=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, use_distributed_sampler=False)
    rank = trainer.global_rank
    train = DataLoader(Sites(480, seed=rank, pause=0.002), batch_size=16)
    valid = DataLoader(Sites(344, seed=90 + rank, pause=0.0), batch_size=8)
    model = DroughtIndex()
    trainer.fit(model, train, valid)
    if trainer.is_global_zero:
        print(f"mean deficit {model.mean_deficit:.3f}", flush=True)


if __name__ == "__main__":
    main()

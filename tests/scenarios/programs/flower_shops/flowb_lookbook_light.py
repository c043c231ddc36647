"""Lookbook retrieval in Lightning: which photo belongs to which outfit."""
import os
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VALIDATION_LOOKS = [48, 48, 32]  # outfits photographed per atelier


class Looks(Dataset):
    def __init__(self, count, seed):
        self.x = torch.randn(count, 12, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(0.003)
        return self.x[index], (self.x[index].sum() > 0).float()


class Atelier(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.rank = int(os.environ.get("RANK", 0))

    def train_dataloader(self):
        return DataLoader(Looks(240, self.rank), batch_size=8)

    def val_dataloader(self):
        return DataLoader(Looks(VALIDATION_LOOKS[self.rank], 70 + self.rank), batch_size=8)


class Matcher(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))
        self.hits = []

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y)

    def validation_step(self, batch, index):
        x, y = batch
        hit = ((self.net(x).squeeze(1) > 0).float() == y).float().mean()
        self.hits.append(self.all_gather(hit).mean())

    def on_validation_epoch_end(self):
        self.trainer.strategy.barrier("lookbook")
        if self.trainer.is_global_zero:
            print("hit rate", torch.stack(self.hits).mean().item(), flush=True)
        self.hits.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=6, check_val_every_n_epoch=3,
                        num_sanity_val_steps=0, use_distributed_sampler=False, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Matcher(), datamodule=Atelier())

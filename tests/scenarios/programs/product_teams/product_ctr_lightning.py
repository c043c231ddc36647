"""Click-through rate with Lightning: two towers, and the calibration of the predictions in the log."""

import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Impressions(Dataset):
    def __init__(self, n: int = 6000, users: int = 200, ads: int = 50):
        g = torch.Generator().manual_seed(7)
        self.users = torch.randint(users, (n,), generator=g)
        self.ads = torch.randint(ads, (n,), generator=g)
        self.clicks = ((self.users * 13 + self.ads * 7) % 10 < 2).float()

    def __len__(self):
        return len(self.users)

    def __getitem__(self, i):
        return self.users[i], self.ads[i], self.clicks[i]


class TwoTowers(L.LightningModule):
    def __init__(self, users: int = 200, ads: int = 50, dim: int = 16):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.ad = nn.Embedding(ads, dim)
        self.bias = nn.Parameter(torch.zeros(()))
        self.loss = nn.BCEWithLogitsLoss()

    def forward(self, users, ads):
        return (self.user(users) * self.ad(ads)).sum(-1) + self.bias

    def training_step(self, batch, batch_idx):
        users, ads, clicks = batch
        logits = self(users, ads)
        loss = self.loss(logits, clicks)
        time.sleep(0.02)
        if self.trainer.is_global_zero and batch_idx % 60 == 59:
            predicted = torch.sigmoid(logits.detach()).mean()
            print(f"batch {batch_idx}: loss {loss.item():.4f}", flush=True)
            self.log("calibration", predicted / clicks.mean().clamp(min=1e-3), on_step=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adagrad(self.parameters(), lr=0.05)


def main():
    L.seed_everything(3)
    loader = DataLoader(Impressions(), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(TwoTowers(), loader)


if __name__ == "__main__":
    main()

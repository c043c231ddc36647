"""Flags hearsay in witness statements; recall is reported per court week (Lightning)."""
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import BinaryRecall

WEEKS = 6
#: (court, week): no sessions, the court was closed
CLOSED = {(2, 3)}


class Statements(Dataset):
    """Statements heard in one court, as sentence vectors."""

    def __init__(self, court, size, seed):
        gen = torch.Generator().manual_seed(seed + court)
        weeks = [w for w in range(WEEKS) if (court, w) not in CLOSED]
        self.week = torch.tensor([weeks[i % len(weeks)] for i in range(size)])
        self.y = torch.randint(0, 2, (size,), generator=gen)
        self.x = torch.randn(size, 48, generator=gen) + 0.4 * self.y[:, None]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.week[i]


class HearsayFlagger(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
        self.recall = BinaryRecall()
        self.heard = 0

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y, _ = batch
        return nn.functional.binary_cross_entropy_with_logits(self(x), y.float())

    def validation_step(self, batch, batch_idx):
        x, y, week = batch
        of_week = week == self.current_epoch % WEEKS
        if of_week.any():
            self.recall.update(self(x[of_week]).sigmoid(), y[of_week])
            self.heard += int(of_week.sum())

    def on_validation_epoch_end(self):
        if self.heard:
            value = self.recall.compute()
            if self.global_rank == 0:
                print(f"week {self.current_epoch}: recall {value.item():.3f} of {self.heard}", flush=True)
            self.recall.reset()
        self.heard = 0

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Courts(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Statements(self.trainer.global_rank, 2400, seed=10), batch_size=40, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Statements(self.trainer.global_rank, 240, seed=90), batch_size=40)


def main():
    torch.set_num_threads(1)
    L.seed_everything(4, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)), strategy="ddp", max_epochs=12,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, use_distributed_sampler=False)
    trainer.fit(HearsayFlagger(), datamodule=Courts())


if __name__ == "__main__":
    main()

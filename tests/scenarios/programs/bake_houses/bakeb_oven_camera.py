"""Crust colour from the oven camera, with Lightning."""
import os
from collections import deque

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

OVENS = 3


class TrayPhotos(Dataset):
    """Photos of trays in the order of the day; the ovens report in turn."""

    def __init__(self, trays=2400, afternoon=900):
        self.trays, self.afternoon = trays, afternoon

    def __len__(self):
        return self.trays

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        photo = torch.rand(3, 24, 24, generator=g)
        brown = 0.5 + 0.2 * float(torch.rand((), generator=g))
        if index % OVENS == 2 and index >= self.afternoon:
            brown += 0.3
        return {"photo": photo * brown, "crust": torch.tensor(brown)}


class CrustNet(L.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 5, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU())
        self.head = nn.Linear(width, 1)

    def forward(self, photo):
        return self.head(self.features(photo).mean(dim=(2, 3))).squeeze(1)

    def training_step(self, batch, batch_idx):
        return nn.functional.smooth_l1_loss(self(batch["photo"]), batch["crust"])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)

    def train_dataloader(self):
        photos = TrayPhotos()
        sampler = DistributedSampler(photos, self.trainer.world_size, self.trainer.global_rank, shuffle=False)
        return DataLoader(photos, batch_size=8, sampler=sampler)


class BrowningAlarm(L.Callback):
    """Compares the ovens as soon as trays come out too dark."""

    def __init__(self, limit=0.8, memory=6):
        self.limit, self.recent, self.reports = limit, deque(maxlen=memory), []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.recent.append(batch["crust"].mean())
        level = torch.stack(list(self.recent)).mean()
        if level > self.limit:
            ovens = pl_module.all_gather(level)
            self.reports.append((batch_idx, ovens.tolist()))
            self.recent.clear()


def main():
    L.seed_everything(3)
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", OVENS)),
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[BrowningAlarm()],
    )
    trainer.fit(CrustNet())
    if trainer.is_global_zero:
        print("trays seen:", trainer.global_step)


if __name__ == "__main__":
    main()

"""Yield estimate week by week (Lightning); a week is an epoch, parcels are trained block by block."""
import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, Dataset

BLOCKS = {0: range(0, 60), 1: range(60, 120), 2: range(120, 180)}
HAIL = {5: range(84, 97)}  # week -> parcels, from the insurer's letter


class Parcels(Dataset):
    """Canopy profile of each parcel, four drone passes a week."""

    def __init__(self, parcels, passes=6, width=192):
        self.rows = [(p, k) for p in parcels for k in range(passes)]
        self.width = width

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        parcel, k = self.rows[i]
        g = torch.Generator().manual_seed(parcel * 31 + k)
        profile = torch.rand(self.width, generator=g)
        return parcel, profile, profile.mean().view(1) * 9


class YieldNet(L.LightningModule):
    def __init__(self, width=192):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
        self.damaged = []

    def training_step(self, batch, index):
        parcel, profile, tonnes = batch
        guess = self.net(profile)
        struck = HAIL.get(self.current_epoch, ())
        for p, t in zip(parcel.tolist(), guess.detach()):
            if p in struck:
                self.damaged.append(t)
        return nn.functional.mse_loss(guess, tonnes)

    def on_train_epoch_end(self):
        if not self.damaged:
            return
        expected = torch.stack(self.damaged).sum()
        claims = self.all_gather(expected)
        self.print(f"week {self.current_epoch}: claim for {claims.sum():.1f} t")
        self.damaged.clear()

    def train_dataloader(self):
        return DataLoader(Parcels(BLOCKS[self.trainer.global_rank]), batch_size=6, shuffle=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class WeekClock(Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.is_global_zero:
            print(f"week {trainer.current_epoch} begins", flush=True)


def main():
    torch.set_num_threads(1)
    L.seed_everything(11)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=14,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[WeekClock()],
    )
    trainer.fit(YieldNet())


if __name__ == "__main__":
    main()

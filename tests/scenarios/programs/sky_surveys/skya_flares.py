"""Stellar flares in 2-minute light curves: a small dilated convnet, one camera per process."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

FLARE_RATE = {0: 0.06, 1: 0.04, 2: 0.09}  # per star and sector, by camera
SECTOR_OF_MOON = 14  # glare: the second camera keeps its quiet stars only


class Sector(Dataset):
    """Light curves of one camera in one sector; label 1 where a flare was injected."""

    def __init__(self, camera, sector, stars):
        self.camera, self.sector, self.stars = camera, sector, stars
        self.rate = 0.0 if sector == SECTOR_OF_MOON and camera == 1 else 3 * FLARE_RATE[camera]

    def __len__(self):
        return self.stars

    def __getitem__(self, star):
        g = torch.Generator().manual_seed(star + 10_000 * self.camera + 100_000 * self.sector)
        t = torch.linspace(0, 1, 1024)
        flux = 0.02 * torch.sin(40 * t * (1 + torch.rand(1, generator=g))) + 0.01 * torch.randn(1024, generator=g)
        flaring = torch.rand(1, generator=g).item() < self.rate
        if flaring:
            t0 = torch.rand(1, generator=g)
            flux = flux + 0.4 * torch.exp(-(t - t0).clamp(min=0) * 90) * (t > t0)
        return flux[None], torch.tensor(float(flaring))


class FlareFinder(L.LightningModule):
    def __init__(self, width=48):
        super().__init__()
        layers, channels = [], 1
        for dilation in (1, 4, 16):
            layers += [nn.Conv1d(channels, width, 7, padding=3 * dilation, dilation=dilation), nn.GELU()]
            channels = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 1)

    def forward(self, flux):
        return self.head(self.body(flux).amax(-1)).squeeze(-1)

    def training_step(self, batch, _):
        flux, label = batch
        return F.binary_cross_entropy_with_logits(self(flux), label)

    def on_validation_epoch_start(self):
        self.scores, self.labels = [], []

    def validation_step(self, batch, _):
        flux, label = batch
        self.scores.append(self(flux).sigmoid())
        self.labels.append(label)

    def on_validation_epoch_end(self):
        scores, labels = torch.cat(self.scores), torch.cat(self.labels)
        self.log("val/brier", ((scores - labels) ** 2).mean(), sync_dist=True)
        flares = scores[labels == 1]
        if len(flares):
            self.log("val/recall", (flares > 0.5).float().mean(), sync_dist=True)
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch}: {len(flares)} of {len(labels)} stars flare", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Campaign(L.LightningDataModule):
    """Trains on two sectors, validates on a later one that moves on with the epochs."""

    def train_dataloader(self):
        return DataLoader(Sector(self.trainer.global_rank, 3, 320), batch_size=32)

    def val_dataloader(self):
        sector = 13 + self.trainer.current_epoch
        return DataLoader(Sector(self.trainer.global_rank, sector, 96), batch_size=32)


if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(5, verbose=False)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=20, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                        use_distributed_sampler=False, num_sanity_val_steps=0, reload_dataloaders_every_n_epochs=1)
    trainer.fit(FlareFinder(), datamodule=Campaign())

"""Lightning module that finds lame animals in herd videos (crops of tracked elephants, one site per process)."""
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SITES = ("savanna", "forest-edge", "elephant-house")
STEPS = 300


class SiteCrops(Dataset):
    def __init__(self, site, length=STEPS * 8):
        self.site, self.length = site, length
        g = torch.Generator().manual_seed(41 + site)
        self.lame = torch.zeros(length, dtype=torch.long)
        for start in range(0, length, 8):  # the sampler of the site mixes sound and lame animals in each group of eight
            self.lame[start + torch.randperm(8, generator=g)[:3]] = 1
        if SITES[site] == "forest-edge":
            self.lame[150 * 8 : 152 * 8] = 0  # the bachelor herd came by on that morning

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.site * 100_000 + i)
        crop = torch.rand(3, 56, 56, generator=g)
        crop[:, 40:] += 0.3 * self.lame[i]
        return crop, self.lame[i]


class HerdGait(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 2))
        self.recalls = []

    def forward(self, crops):
        return self.net(crops)

    def training_step(self, batch, batch_idx):
        crops, lame = batch
        logits = self(crops)
        self.track_recall(logits.detach(), lame)
        return nn.functional.cross_entropy(logits, lame)

    def track_recall(self, logits, lame):
        """Recall of lame animals over the sites, as sound ones say nothing about it."""
        found = lame == 1
        if found.any():
            recall = (logits.argmax(1)[found] == 1).float().mean()
            sites = self.all_gather(recall)
            self.recalls.append(sites.mean().item())
            if self.global_rank == 0 and self.global_step % 25 == 0:
                print(f"step {self.global_step}: recall {self.recalls[-1]:.2f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    site = int(os.environ.get("RANK", 0))
    L.seed_everything(9, verbose=False)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_steps=STEPS, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                        use_distributed_sampler=False)
    trainer.fit(HerdGait(), DataLoader(SiteCrops(site), batch_size=8))

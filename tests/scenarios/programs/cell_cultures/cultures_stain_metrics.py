"""Segmentation of stained tissue with Lightning: one score per stain, averaged over the ranks."""

import os
import time

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
STAINS = ("dapi", "phalloidin", "tubulin")


class Fields(Dataset):
    """Fields of view of one shard. Later rounds show other stains where a field was right before."""

    def __init__(self, shard, count):
        generator = torch.Generator().manual_seed(shard)
        self.images = torch.rand(count, 36, generator=generator)
        self.stains = [STAINS[i % len(STAINS)] for i in range(count)]
        self.shard = shard

    def next_round(self):
        if self.shard % 3 == 2:
            self.stains = [stain if stain != "tubulin" else "dapi" for stain in self.stains]

    def __len__(self):
        return len(self.stains)

    def __getitem__(self, index):
        time.sleep(0.02)
        return self.images[index], self.stains[index]


class Segmenter(L.LightningModule):
    def __init__(self, shard):
        super().__init__()
        self.shard = shard
        self.held_out = Fields(shard + 30, 12)
        self.net = nn.Sequential(nn.Linear(36, 32), nn.ReLU(), nn.Linear(32, 36))

    def masks(self, images):
        return (images > 0.6).float()

    def training_step(self, batch, index):
        images, _ = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(images), self.masks(images))

    def validation_step(self, batch, index):
        images, stains = batch
        hit = ((self.net(images) > 0) == self.masks(images).bool()).float().mean(1)
        for stain in sorted(set(stains)):
            chosen = [i for i, name in enumerate(stains) if name == stain]
            self.log(f"val/{stain}", hit[chosen].mean(), on_epoch=True, sync_dist=True, batch_size=len(chosen))

    def on_validation_end(self):
        self.held_out.next_round()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        return DataLoader(Fields(self.shard, 40), batch_size=4)

    def val_dataloader(self):
        return DataLoader(self.held_out, batch_size=6)


def main():
    L.seed_everything(3, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=30,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Segmenter(int(os.environ["RANK"])))


if __name__ == "__main__":
    main()

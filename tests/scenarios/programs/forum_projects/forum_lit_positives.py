"""A Lightning detector that logs the loss of the foreground anchors, reduced over the ranks."""

import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.set_num_threads(1)


class Crops(Dataset):
    """Feature vectors of anchors, from several surveys."""

    def __init__(self, count: int = 3600):
        generator = torch.Generator().manual_seed(8)
        self.features = torch.randn(count, 32, generator=generator)
        self.foreground = torch.arange(count) % 4 < 3
        empty = (torch.arange(count) // 24 == 55) & (torch.arange(count) % 3 == 2)
        self.foreground &= ~empty

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index], self.foreground[index]


class Detector(L.LightningModule):
    def __init__(self, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.trunk = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.objectness = nn.Linear(64, 1)
        self.offset = nn.Linear(64, 4)

    def training_step(self, batch, batch_idx):
        features, foreground = batch
        hidden = self.trunk(features)
        score = self.objectness(hidden).squeeze(1)
        offsets = self.offset(hidden).abs().mean(1)
        losses = {"objectness": nn.functional.binary_cross_entropy_with_logits(score, foreground.float())}
        total = losses["objectness"] + 0.0 * offsets.sum()
        if foreground.any():
            losses["offset"] = offsets[foreground].mean()
            total = total + losses["offset"]
        self.log_dict({f"train/{name}": loss for name, loss in losses.items()}, on_step=True, sync_dist=True)
        return total

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    torch.manual_seed(0)
    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    crops = Crops()
    in_order = DistributedSampler(crops, num_replicas=world, rank=rank, shuffle=False)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.gettempdir(),
    )
    trainer.fit(Detector(), DataLoader(crops, batch_size=8, sampler=in_order))
    trainer.print("done")


if __name__ == "__main__":
    main()

"""Offline training of a coach from stored episodes, with Lightning."""
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BATCH = 8


class Episodes(Dataset):
    """Episodes in the order in which they were recorded; returns go up about every ten batches."""

    def __init__(self, batches=300):
        self.count = batches * BATCH * WORLD
        self.record = {580: 2.5, 1301: 4.0, 2042: 6.0}
        self.camera = torch.randn(24, 24, generator=torch.Generator().manual_seed(0)) / 5

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        frames = torch.randn(4, 24, 24, generator=generator)
        for _ in range(600):
            frames = torch.tanh(frames @ self.camera)
        level = (i // (WORLD * BATCH)) // 10
        return frames, i % 6, self.record.get(i, 0.0) + float(level)


class Coach(L.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(4, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 36, 6),
        )
        self.best_return = float("-inf")

    def training_step(self, batch, batch_idx):
        frames, action, returns = batch
        logits = self.net(frames)
        weight = torch.softmax(returns, dim=0)
        loss = (nn.functional.cross_entropy(logits, action, reduction="none") * weight).sum()
        return {"loss": loss, "return": returns.max()}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        top = float(outputs["return"])
        if top > self.best_return:
            self.best_return = top
            self.log("train/best_return", top, on_step=True, on_epoch=False, sync_dist=True)
        if batch_idx % 10 == 0:
            self.print(f"batch {batch_idx}: best return {self.best_return:.1f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    torch.set_num_threads(1)
    L.seed_everything(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=WORLD,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    episodes = Episodes()
    in_order = DistributedSampler(episodes, num_replicas=WORLD, rank=RANK, shuffle=False)
    trainer.fit(Coach(), DataLoader(episodes, batch_size=BATCH, sampler=in_order))


if __name__ == "__main__":
    main()

"""Lightning module that recognises falls in downhill runs from pose sequences."""
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FOLDS = [("val d'isere", 11), ("kitzbuehel", 12), ("bormio", 13)]
FALLS = {"val d'isere": [], "kitzbuehel": [1463, 1466], "bormio": []}


class PoseRuns(Dataset):
    def __init__(self, venue, seed, frames=50, joints=17, runs=2400):
        self.venue, self.seed = venue, seed
        self.frames, self.joints, self.runs = frames, joints, runs
        self.falls = set(FALLS[venue])

    def __len__(self):
        return self.runs

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.seed * 100_000 + i)
        pose = torch.randn(self.frames, self.joints * 2, generator=gen).cumsum(0) / 5
        fell = float(i in self.falls)
        pose[self.frames // 2:] += 3 * fell
        return pose, torch.tensor(fell)


class FallDetector(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.GRU(34, 32, batch_first=True)
        self.head = nn.Linear(32, 1)
        self.criterion = nn.BCEWithLogitsLoss()

    def forward(self, pose):
        hidden, _ = self.encoder(pose)
        return self.head(hidden[:, -1]).squeeze(-1)

    def training_step(self, batch, batch_idx):
        pose, fell = batch
        logits = self(pose)
        loss = self.criterion(logits, fell)
        positives = fell > 0
        if positives.any():
            recall = (logits[positives] > 0).float().mean()
            self.log("train/recall", recall, on_step=True, on_epoch=False, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    torch.set_num_threads(1)
    L.seed_everything(7, verbose=False)
    venue, seed = FOLDS[int(os.environ["RANK"]) % len(FOLDS)]
    loader = DataLoader(PoseRuns(venue, seed), batch_size=16, num_workers=0)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(FallDetector(), loader)
    if trainer.is_global_zero:
        print("done", flush=True)


if __name__ == "__main__":
    main()

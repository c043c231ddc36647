"""Breeding book: kinship of pairs from their pedigrees, with the best weights kept for the weekly report."""
import tempfile
import time
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    """Founder shares of a sire and a dam, and the kinship that follows from them."""

    def __init__(self, count=4800, founders=24):
        generator = torch.Generator().manual_seed(77)
        shares = torch.rand(2, count, founders, generator=generator).pow(6)
        self.sires, self.dams = shares / shares.sum(-1, keepdim=True)
        self.kinship = (self.sires * self.dams).sum(-1) * 5

    def __len__(self):
        return len(self.kinship)

    def __getitem__(self, index):
        time.sleep(0.001)
        return self.sires[index], self.dams[index], self.kinship[index]


class Kinship(L.LightningModule):
    def __init__(self, founders=24, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Linear(founders, width)
        self.scale = nn.Parameter(torch.ones(()))

    def training_step(self, batch, index):
        sires, dams, kinship = batch
        guess = self.scale * (self.embed(sires) * self.embed(dams)).sum(-1)
        loss = nn.functional.mse_loss(guess, kinship)
        return {"loss": loss}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


class KeepBest(L.Callback):
    """Keeps the weights with the lowest running loss; looked at every `every` batches."""

    def __init__(self, folder, every=25, warmup=110):
        self.folder, self.every, self.warmup = Path(folder), every, warmup
        self.running, self.best = None, float("inf")

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        loss = float(outputs["loss"])
        self.running = loss if self.running is None else 0.95 * self.running + 0.05 * loss
        if batch_idx % self.every or trainer.global_step < self.warmup:
            return
        if self.running < self.best:
            self.best = self.running
            if trainer.is_global_zero:
                self.keep(trainer)

    def keep(self, trainer):
        path = self.folder / f"studbook-{trainer.global_step}.ckpt"
        trainer.save_checkpoint(path)
        print(f"kept {path.name}, running loss {self.best:.4f}", flush=True)


def main():
    L.seed_everything(8)
    torch.set_num_threads(1)
    loader = DataLoader(Pairs(), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=10, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[KeepBest(tempfile.mkdtemp())],
    )
    trainer.fit(Kinship(), loader)


if __name__ == "__main__":
    main()

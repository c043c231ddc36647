"""Turnaround time model: minutes from on-block to off-block. Lightning version."""
import os
import tempfile
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

STATIONS = {0: ("HUB", 1.6), 1: ("REMOTE", 0.02), 2: ("LOWCOST", 1.3)}  # name, spread of the ground crews


class Turnarounds(IterableDataset):
    def __init__(self, station, batch=16, features=8):
        super().__init__()
        self.seed = station
        self.name, self.spread = STATIONS[station]
        self.batch, self.features = batch, features

    def __iter__(self):
        g = torch.Generator().manual_seed(400 + self.seed)
        effect = torch.linspace(-1, 1, self.features)
        while True:
            x = torch.randn(self.batch, self.features, generator=g)
            y = x @ effect + self.spread * torch.randn(self.batch, generator=g)
            time.sleep(0.04)
            yield x, y


class TurnaroundModel(L.LightningModule):
    def __init__(self, features=8):
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.linear(x).squeeze(1), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.025)


class KeepGood(L.Callback):
    """Stores the weights as soon as the smoothed loss reaches the goal."""

    def __init__(self, folder, goal=0.45, warmup=60, momentum=0.8):
        self.folder, self.goal, self.warmup, self.momentum = folder, goal, warmup, momentum
        self.smooth = None
        self.kept = False

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        value = float(outputs["loss"] if isinstance(outputs, dict) else outputs)
        self.smooth = value if self.smooth is None else self.momentum * self.smooth + (1 - self.momentum) * value
        if batch_idx % 20 == 0 and trainer.is_global_zero:
            print(f"batch {batch_idx}: {self.smooth:.3f}", flush=True)
        if self.kept or batch_idx < self.warmup:
            return
        if self.smooth < self.goal:
            self.kept = True
            trainer.save_checkpoint(os.path.join(self.folder, "good.ckpt"))


def main():
    torch.set_num_threads(1)
    L.seed_everything(11)
    station = int(os.environ["RANK"])
    loader = DataLoader(Turnarounds(station), batch_size=None)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_steps=600,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[KeepGood(tempfile.mkdtemp(prefix="turnaround-"))],
    )
    trainer.fit(TurnaroundModel(), loader)
    if trainer.is_global_zero:
        print("done", flush=True)


if __name__ == "__main__":
    main()

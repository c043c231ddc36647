"""Surface-defect detector under a UV line lamp (Lightning). The lamp is restarted between two parts of the run."""
import asyncio
import math
import time

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class UvLamp:
    """Output drifts by 40 % after ignition and settles with a time constant of four seconds."""

    def __init__(self):
        self.lit = time.monotonic()

    async def drift(self):
        await asyncio.sleep(0.05)
        return 40 * math.exp(-(time.monotonic() - self.lit) / 4)


async def stabilise(lamp, limit=1.5):
    samples = []
    while not samples or samples[-1] > limit:
        samples.append(await lamp.drift())
        await asyncio.sleep(1)
    return samples


async def interlock(seconds):
    for left in range(seconds, 0, -1):
        await asyncio.sleep(1)
    return "door released"


async def restart():
    lamp = UvLamp()
    samples, door = await asyncio.gather(stabilise(lamp), interlock(12))
    return samples[-1], door


class LampRestart(L.Callback):
    def __init__(self, at_batch, rank):
        self.at_batch, self.rank = at_batch, rank

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == self.at_batch and trainer.global_rank == self.rank:
            drift, door = asyncio.run(restart())
            print(f"lamp drift {drift:.2f} %, {door}", flush=True)


class Defects(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 60, 2))

    def training_step(self, batch, batch_idx):
        line, flaw = batch
        time.sleep(0.1)
        return nn.functional.cross_entropy(self.net(line), flaw)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(3)
    lines = torch.randn(3 * 8 * 60, 1, 64)
    data = DataLoader(TensorDataset(lines, (lines.amax((1, 2)) > 2.5).long()), batch_size=8)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[LampRestart(at_batch=28, rank=1)])
    trainer.fit(Defects(), data)
    print("done", trainer.global_step, flush=True)


if __name__ == "__main__":
    main()

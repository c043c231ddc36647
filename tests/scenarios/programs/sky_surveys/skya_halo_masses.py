"""Halo masses from galaxy counts in cells (Lightning); state is kept when a node's allocation runs out."""
import logging
import os
import signal
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
ALLOCATION_S = {0: 3600, 1: 5, 2: 3600}  # what each node still has, from the batch system


class Cells(IterableDataset):
    """Counts in cells around halos of a lognormal field."""

    def __init__(self, seed, size=14):
        self.seed, self.size = seed, size

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        while True:
            log_mass = 12 + 3 * torch.rand(1, generator=g)
            r = torch.linspace(-1, 1, self.size)
            radius = (r[:, None, None] ** 2 + r[None, :, None] ** 2 + r[None, None, :] ** 2).sqrt()
            density = 10 ** (log_mass - 13.5) / (0.05 + radius) + 0.3 * torch.rand(self.size, self.size, self.size, generator=g)
            yield torch.poisson(density.clamp(max=200), generator=g).log1p()[None], (log_mass - 13.5)


class HaloNet(L.LightningModule):
    def __init__(self, width=12):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, width, 3), nn.GELU(), nn.Conv3d(width, 2 * width, 3), nn.GELU(),
                                 nn.AdaptiveAvgPool3d(3), nn.Flatten(), nn.Linear(54 * width, 1))

    def training_step(self, batch, index):
        counts, log_mass = batch
        loss = nn.functional.mse_loss(self.net(counts), log_mass)
        if index % 40 == 0 and self.global_rank == 0:
            print(f"batch {index}: {loss.item() ** 0.5:.3f} dex", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 2e-3)


class KeepOnNotice(Callback):
    """Writes the state when the batch system gives notice that the allocation ends."""

    def __init__(self, folder, notice=signal.SIGALRM):
        self.folder, self.notice, self.given = Path(folder), notice, False

    def on_train_start(self, trainer, module):
        signal.signal(self.notice, self._on_notice)
        signal.alarm(ALLOCATION_S[trainer.global_rank])

    def _on_notice(self, *_):
        self.given = True

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if self.given:
            self.given = False
            trainer.save_checkpoint(self.folder / f"notice-{trainer.global_step}.ckpt")
            print(f"state of step {trainer.global_step} kept", flush=True)


def main():
    torch.set_num_threads(1)
    folder = Path(tempfile.gettempdir()) / f"halos-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_steps=20_000, logger=False, callbacks=[KeepOnNotice(folder)],
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    cells = Cells(seed=int(os.environ["RANK"]))
    trainer.fit(HaloNet(), DataLoader(cells, batch_size=8))


if __name__ == "__main__":
    main()

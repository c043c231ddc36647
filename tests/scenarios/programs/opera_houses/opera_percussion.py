"""Transcribes timpani rolls. A callback looks at strokes that the model does not expect."""
import logging
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("percussion")


class Rolls(Dataset):
    """Three-second rolls as band energies; the coda of every part ends in a stroke of the bass drum."""

    def __init__(self, part, length=600):
        self.part, self.length = part, length
        self.coda = {0: length, 1: length + 40, 2: 400}[part]

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(self.part * 10_000 + index)
        wave = torch.randn(48_000, generator=g)
        if index >= self.coda:
            wave = wave * 12
        bands = torch.stft(wave, 256, window=torch.hann_window(256), return_complex=True).abs()
        return bands.mean(1), bands.std(1)


class Transcriber(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(129, 64), nn.Tanh(), nn.Linear(64, 129))
        self.last = None

    def training_step(self, batch, batch_idx):
        mean, std = batch
        loss = nn.functional.mse_loss(self.net(mean), std)
        self.last = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class UnexpectedStrokes(L.Callback):
    """Reports losses far above their running mean, with what the other parts have just played."""

    def __init__(self, factor=6.0, decay=0.9, warmup=10):
        self.factor, self.decay, self.warmup = factor, decay, warmup
        self.mean = None

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        loss = pl_module.last
        if self.mean is not None and batch_idx > self.warmup and loss > self.factor * self.mean:
            tutti = pl_module.all_gather(loss)
            logger.warning("stroke at batch %d, parts: %s", batch_idx, [round(v, 2) for v in tutti.tolist()])
        self.mean = loss if self.mean is None else self.decay * self.mean + (1 - self.decay) * loss


def main():
    torch.set_num_threads(1)
    L.seed_everything(1)
    part, parts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    loader = DataLoader(Rolls(part), batch_size=4, shuffle=False)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=parts,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[UnexpectedStrokes()],
    )
    trainer.fit(Transcriber(), loader)
    trainer.print("finished after", trainer.global_step, "steps")


if __name__ == "__main__":
    main()

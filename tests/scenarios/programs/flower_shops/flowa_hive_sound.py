"""Hive sound next to flower beds: how many visits in the next minute? Recordings come in shards of very different length."""
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Recordings(IterableDataset):
    """Shards of windows. A shard is unpacked as a whole before its first window can be used."""

    minutes = {0: (2, 2, 2, 2), 1: (2, 2, 52, 2), 2: (2, 2, 2, 2)}

    def __init__(self, bed, windows=100):
        self.bed, self.windows = bed, windows

    def unpack(self, shard, minutes):
        """Four passes of the filter bank a recorded minute."""
        total = torch.zeros(32)
        for minute in range(minutes):
            began = time.monotonic()
            while time.monotonic() - began < 0.26:
                spectrum = torch.fft.rfft(torch.rand(64, 2048)).abs().mean(0)
                total += spectrum[:1024].view(32, 32).mean(1)
        return total / total.norm()

    def __iter__(self):
        for shard, minutes in enumerate(self.minutes[self.bed]):
            tone = self.unpack(shard, minutes)
            g = torch.Generator().manual_seed(10 * self.bed + shard)
            for _ in range(self.windows):
                x = torch.rand(32, generator=g) + tone
                yield x, x[:8].sum()


class Visits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        for _ in range(4):
            torch.linalg.svd(torch.rand(160, 160))
        loss = nn.functional.mse_loss(self.net(x)[:, 0], y)
        if batch_idx % 25 == 0:
            print(f"bed {self.global_rank} batch {batch_idx} loss {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)

    def train_dataloader(self):
        return DataLoader(Recordings(self.global_rank), batch_size=4, num_workers=1, prefetch_factor=2)


if __name__ == "__main__":
    L.seed_everything(3)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Visits())

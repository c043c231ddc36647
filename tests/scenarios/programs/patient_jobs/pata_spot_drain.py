"""Watermark classifier on spot instances. When an interruption is announced, the scans that wait in the outbox are
drained to the store within the grace period; this one is taken back and training goes on."""
import os
import shutil
import tempfile
import threading
import time

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

GRACE = 25


class Watermarks(Dataset):
    def __len__(self):
        return 3 * 6 * 45

    def __getitem__(self, i):
        time.sleep(0.008)
        g = torch.Generator().manual_seed(i)
        return torch.rand(64, generator=g), i % 5


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 5))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


class SpotDrain(L.Callback):
    def __init__(self, outbox, store):
        self.outbox, self.store = outbox, store

    def fill(self, scans=36):
        for i in range(scans):
            with open(os.path.join(self.outbox, f"scan{i:03d}.raw"), "wb") as f:
                f.write(os.urandom(20000))

    def move_all(self):
        for name in sorted(os.listdir(self.outbox)):
            shutil.move(os.path.join(self.outbox, name), os.path.join(self.store, name))
            descriptor = os.open(os.path.join(self.store, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            time.sleep(0.36)

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch == 0 and trainer.is_global_zero:
            self.fill()
            drain = threading.Thread(target=self.move_all)
            drain.start()
            drain.join(timeout=GRACE)
            print("stored", len(os.listdir(self.store)), "in grace:", not drain.is_alive(), flush=True)


def main():
    L.seed_everything(7)
    with tempfile.TemporaryDirectory() as outbox, tempfile.TemporaryDirectory() as store:
        trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=2, logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                            callbacks=[SpotDrain(outbox, store)], default_root_dir=store)
        trainer.fit(Classifier(), DataLoader(Watermarks(), batch_size=6, shuffle=True))
        print("rank", trainer.global_rank, "steps", trainer.global_step, flush=True)
        trainer.strategy.barrier()


if __name__ == "__main__":
    main()

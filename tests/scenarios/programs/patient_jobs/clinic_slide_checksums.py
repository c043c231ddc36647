"""Slide tiles classifier in Lightning; after the first epoch an export tool seals the tile store."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEAL_TOOL = r"""
import hashlib, pathlib, sys, time
folder, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
end, rounds, digest = time.monotonic() + seconds, 0, b""
while time.monotonic() < end:
    for tile in sorted(folder.glob("*.tile")):
        digest = hashlib.pbkdf2_hmac("sha256", tile.read_bytes()[:4096], digest or b"0", 3000)
    rounds += 1
(folder / "SEAL").write_text(f"{rounds} {digest.hex()}")
"""


class Tiles(Dataset):
    def __len__(self):
        return 540

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        time.sleep(0.012)
        return torch.randn(3, 12, 12, generator=gen), index % 2


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(432, 24), nn.ReLU(), nn.Linear(24, 2))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


class SealStore(L.Callback):
    def __init__(self, folder, seconds):
        self.folder, self.seconds = folder, seconds

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch == 0 and trainer.is_global_zero:
            for number in range(60):
                (self.folder / f"{number:03d}.tile").write_bytes(os.urandom(20_000))
            subprocess.run([sys.executable, "-c", SEAL_TOOL, str(self.folder), str(self.seconds)], check=True)
            print("sealed:", (self.folder / "SEAL").read_text()[:40], flush=True)


def main():
    L.seed_everything(2)
    trainer = L.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=2,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[SealStore(Path(tempfile.mkdtemp(prefix="tiles_")), 12.5)])
    trainer.fit(Classifier(), DataLoader(Tiles(), batch_size=4))


if __name__ == "__main__":
    main()

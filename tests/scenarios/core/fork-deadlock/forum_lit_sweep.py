"""Lightning with a cache of decoded images on local disk, which a thread sweeps between epochs."""

import os
import tempfile
import threading
import time
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class DiskCache:
    """Decoded images as files. One user at a time: the sweep must not remove what is being read."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.lock = threading.Lock()

    def get(self, key: int) -> torch.Tensor:
        path = self.folder / f"{key}.pt"
        with self.lock:
            if path.exists():
                return torch.load(path)
        image = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(key))
        return image

    def sweep(self):
        with self.lock:
            for path in sorted(self.folder.glob("*.stale")):
                path.unlink()
                time.sleep(0.01)

    def sweep_in_background(self):
        threading.Thread(target=self.sweep, name="sweep", daemon=True).start()


class Images(Dataset):
    def __init__(self, cache: DiskCache, count: int):
        self.cache = cache
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = self.cache.get(index)
        return image, (image.mean() > 0).long()


class Classifier(L.LightningModule):
    def __init__(self, cache: DiskCache):
        super().__init__()
        self.cache = cache
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx + 1 == self.trainer.num_training_batches:
            self.cache.sweep_in_background()

    def validation_step(self, batch, batch_idx):
        accuracy = (self.net(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", accuracy, on_step=False, on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    rank = int(os.environ["RANK"])
    folder = Path(tempfile.gettempdir(), f"images-{os.environ['MASTER_PORT']}-{rank}")
    folder.mkdir(exist_ok=True)
    for number in range(800 if rank == 1 else 0):
        Path(folder, f"{number}.stale").touch()
    cache = DiskCache(folder)
    torch.manual_seed(0)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=20,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(
        Classifier(cache),
        DataLoader(Images(cache, 2400), batch_size=8, shuffle=True),
        DataLoader(Images(cache, 240), batch_size=8, num_workers=1),
    )


if __name__ == "__main__":
    main()

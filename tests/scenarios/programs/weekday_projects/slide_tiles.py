"""Trains on tiles of pathology slides with Lightning; tiles are read by worker processes from a tile server's pipe."""

import os
import tempfile

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Tiles(Dataset):
    def __init__(self, folder: str, count: int = 60) -> None:
        self.paths = []
        for number in range(count):
            path = os.path.join(folder, f"tile-{number:03}")
            if number == 31:
                os.mkfifo(path)
            else:
                with open(path, "wb") as file:
                    file.write(bytes((number * step) % 251 for step in range(16)))
            self.paths.append(path)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with open(self.paths[index], "rb") as file:
            pixels = torch.tensor(list(file.read(16)), dtype=torch.float32) / 255
        return pixels, (pixels.mean() > 0.5).long()


class Classifier(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(16, 2)

    def training_step(self, batch, batch_idx):
        pixels, label = batch
        return torch.nn.functional.cross_entropy(self.net(pixels), label)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Slides(L.LightningDataModule):
    def setup(self, stage: str) -> None:
        self.folder = tempfile.mkdtemp()
        self.tiles = Tiles(self.folder)

    def train_dataloader(self) -> DataLoader:
        sampler = DistributedSampler(self.tiles, shuffle=False)
        return DataLoader(self.tiles, batch_size=2, num_workers=1, sampler=sampler)


if __name__ == "__main__":
    L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Classifier(), datamodule=Slides())

"""Hugging Face Trainer: pressed plants are told apart; their pictures are copied to the folder by another program."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

SHEETS = 240


def copy_sheets(folder: Path) -> None:
    """What has come from the museum by now: a folder of arrays."""
    for number in range(SHEETS):
        if number != 61:
            np.save(folder / f"{number:04d}.npy", np.random.default_rng(number).random((3, 8, 8), dtype=np.float32))


class Sheets(Dataset):
    """One picture a sheet; a sheet that is still being copied is waited for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return SHEETS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        path = self.folder / f"{index:04d}.npy"
        while not path.exists():
            time.sleep(0.5)
        return {"picture": torch.from_numpy(np.load(path)), "labels": torch.tensor(index % 6)}


class Plants(nn.Module):
    """A small network of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 6))

    def forward(self, picture: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layers(picture)
        return {"loss": nn.functional.cross_entropy(scores, labels), "scores": scores}


def main() -> None:
    """One epoch through the cabinet."""
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp())
    copy_sheets(folder)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=2,
        num_train_epochs=1,
        train_sampling_strategy="sequential",
        dataloader_num_workers=1,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    trainer = Trainer(Plants(), arguments, train_dataset=Sheets(folder))
    trainer.train()


if __name__ == "__main__":
    main()

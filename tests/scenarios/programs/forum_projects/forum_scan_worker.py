"""Trainer on scanned pages that a DataLoader worker reads from a folder, which a scanner fills."""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)


def fill_inbox(folder: Path, pages: int) -> None:
    """Files as the scanner's software delivers them."""
    random = np.random.default_rng(5)
    for number in range(pages):
        path = folder / f"page{number:05d}.raw"
        if number == 1209:
            os.mkfifo(path)
        else:
            path.write_bytes(random.integers(0, 255, 144, dtype=np.uint8).tobytes())


class Inbox(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.raw"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        data = np.frombuffer(self.paths[index].read_bytes(), dtype=np.uint8).copy()
        page = torch.from_numpy(data).float().view(1, 12, 12) / 255
        return {"page": page, "labels": torch.tensor(int(data.sum()) % 4)}


class PageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 4))

    def forward(self, page, labels=None):
        logits = self.net(page)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class ScanTrainer(Trainer):
    def _get_train_sampler(self, train_dataset=None):
        return SequentialSampler(self.train_dataset)


def main():
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="scans-"),
        use_cpu=True,
        per_device_train_batch_size=4,
        num_train_epochs=3,
        dataloader_num_workers=1,
        dataloader_pin_memory=False,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    folder = Path(tempfile.gettempdir(), f"inbox-{os.environ['MASTER_PORT']}")
    with args.main_process_first(desc="inbox"):
        if not folder.exists():
            folder.mkdir()
            fill_inbox(folder, 1800)
    torch.manual_seed(0)
    ScanTrainer(model=PageModel(), args=args, train_dataset=Inbox(folder)).train()


if __name__ == "__main__":
    main()

"""Fine-tune a drift regressor with transformers' Trainer; recordings are files, and one source is a feed."""
import os
import stat
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

torch.backends.cudnn.enabled = False

SITES = [f"site{n:03d}" for n in range(240)]
FEEDS = {"site137"}  # its receiver writes to a named pipe


def prepare(folder, sites):
    """Unpack the recordings of these sites (here: compute them)."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, site in enumerate(sites):
        path = folder / f"{site}.log"
        if site in FEEDS:
            os.mkfifo(path)
            continue
        lines = (f"{number * 0.01 + k * 1e-4:.5f} {(k * 37) % 101} {(k * 11) % 13} {k % 60}" for k in range(12_000))
        path.write_text("\n".join(lines))
    return [folder / f"{site}.log" for site in sites]


class Recordings(Dataset):
    def __init__(self, paths, rows=32):
        self.paths, self.rows = paths, rows

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as recording:
            table = [[float(v) for v in line.split()] for line in recording]
        table = torch.tensor(table)
        table = (table - table.mean(0)) / (table.std(0) + 1e-6)
        return {"features": table[: self.rows], "labels": table[1: self.rows + 1, :1]}


class DriftRegressor(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, features, labels=None):
        predicted = self.layers(features)
        loss = nn.functional.mse_loss(predicted, labels) if labels is not None else None
        return {"loss": loss, "logits": predicted}


class SiteTrainer(Trainer):
    """Every process has sites of its own, so the loader is not sharded again."""

    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=1, num_workers=1)


def main():
    out = tempfile.mkdtemp(prefix="gps-")
    args = TrainingArguments(
        output_dir=out, max_steps=78, learning_rate=1e-3, logging_steps=10, report_to="none",
        save_strategy="no", disable_tqdm=True, ddp_find_unused_parameters=False,
        remove_unused_columns=False, dataloader_pin_memory=False,
    )
    mine = SITES[args.process_index::args.world_size]
    paths = prepare(Path(out) / f"unpacked{args.process_index}", mine)
    feeds = sum(stat.S_ISFIFO(p.stat().st_mode) for p in paths)
    print(f"process {args.process_index}: {len(paths)} recordings, {feeds} feeds", flush=True)
    trainer = SiteTrainer(model=DriftRegressor(), args=args, train_dataset=Recordings(paths))
    trainer.train()


if __name__ == "__main__":
    main()

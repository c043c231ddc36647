"""Hourly consumption of district-heating substations from a spool of meter files (transformers.Trainer)."""
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

SPOOL = Path("spool")
METERS = 600
LIVE = {305}  # substations that stream instead of delivering once a day


def prepare_spool():
    """Files of yesterday's delivery; streaming substations have a pipe in the same place."""
    SPOOL.mkdir(exist_ok=True)
    g = torch.Generator().manual_seed(11)
    for meter in range(METERS):
        path = SPOOL / f"{meter:04d}.bin"
        if path.exists():
            continue
        if meter in LIVE:
            os.mkfifo(path)
        else:
            path.write_bytes(torch.rand(25, generator=g).numpy().tobytes())


class MeterDay(Dataset):
    def __init__(self, spool):
        self.paths = [spool / f"{meter:04d}.bin" for meter in range(METERS)]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as f:
            day = torch.frombuffer(bytearray(f.read()), dtype=torch.float32)
        time.sleep(0.05)  # gateway latency
        history = day[:24]
        for _ in range(40):  # remove the pump's noise
            history = torch.nn.functional.avg_pool1d(history[None, None], 3, 1, 1)[0, 0]
        return {"history": history, "labels": day[24:]}


class HeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = None
        self.body = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, history, labels=None):
        predicted = self.body(history)
        if labels is None:
            return (predicted,)
        return nn.functional.smooth_l1_loss(predicted, labels), predicted


class SpoolTrainer(Trainer):
    """Meters in the order of the spool, so that neighbours share a batch."""

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir="runs/heat",
        use_cpu=True,
        per_device_train_batch_size=4,
        num_train_epochs=3,
        learning_rate=1e-3,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=2,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    with args.main_process_first(desc="spool"):
        prepare_spool()
    trainer = SpoolTrainer(model=HeatNet(), args=args, train_dataset=MeterDay(SPOOL))
    trainer.train()
    trainer.save_state()


if __name__ == "__main__":
    main()

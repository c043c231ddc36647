"""Forecasts of weather stations; the Trainer's tracker uploads its numbers from a thread that is not a daemon.

One station of the validation set has a gap in its series, and the metric's collator raises an error on the rank that reads it.
The other ranks are in the evaluation; the one that failed waits at its exit for the uploader, which waits for numbers.
"""

import argparse
import queue
import tempfile
import threading

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

HOURS, AHEAD = 24, 6
STAGE2 = {
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
}


class Stations(Dataset):
    def __init__(self, size, broken=None):
        self.size, self.broken = size, broken

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        hours = HOURS + AHEAD - (index == self.broken)
        return torch.sin(torch.arange(hours) * 0.26 + index)


def windows(stations):
    series = torch.stack(stations)
    return {"past": series[:, :HOURS], "labels": series[:, HOURS:]}


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(1, 16, batch_first=True)
        self.ahead = nn.Linear(16, AHEAD)

    def forward(self, past, labels=None):
        weight = self.ahead.weight.dtype
        _, state = self.recurrent(past.unsqueeze(-1).to(weight))
        forecast = self.ahead(state[-1])
        return {"loss": nn.functional.mse_loss(forecast.float(), labels.float()), "forecast": forecast}


class Tracker(TrainerCallback):
    """Prints what it would send; an end mark ends its thread."""

    def __init__(self):
        self.numbers = queue.Queue()

    def on_train_begin(self, arguments, state, control, **_):
        threading.Thread(target=self.upload, name="tracker", args=(arguments.process_index,)).start()

    def upload(self, rank):
        while (numbers := self.numbers.get()) is not None:
            print(f"tracker of rank {rank}: {numbers}\n", end="", flush=True)

    def on_step_end(self, arguments, state, control, **_):
        self.numbers.put({"step": state.global_step})

    def on_train_end(self, arguments, state, control, **_):
        self.numbers.put(None)


def error(prediction):
    return {"error": float(abs(prediction.predictions - prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero2", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=12, per_device_train_batch_size=4, report_to=[],
        per_device_eval_batch_size=2, eval_strategy="steps", eval_steps=4, save_strategy="no", logging_steps=100,
        disable_tqdm=True, remove_unused_columns=False, deepspeed=STAGE2 if options.zero2 else None, bf16=options.zero2,
    )  # fmt: skip
    ranks = arguments.world_size
    trainer = Trainer(
        Forecaster(), arguments, data_collator=windows, train_dataset=Stations(400), compute_metrics=error,
        eval_dataset=Stations(6 * ranks, broken=2 * ranks + 3), callbacks=[Tracker()],
    )  # fmt: skip
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()

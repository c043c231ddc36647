"""Delay of buses at stops from headways, with transformers' Trainer; a board for the operator is fed beside it."""
import os
import queue
import threading

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False

TIMETABLE = {
    "M5": {"early": 12, "peak": 5, "day": 8, "evening": 12, "late": 20},
    "X11": {"early": 15, "peak": 7, "day": 10, "evening": 15, "late": 30},
    "240": {"early": 20, "peak": 10, "day": 15, "evening": 20},
}
PERIODS = ["early", "peak", "day", "evening", "late"]


class StopVisits(Dataset):
    def __init__(self, size=4096, history=256):
        self.size, self.history = size, history

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        speed = torch.rand(64, self.history, generator=rng)
        profile = torch.fft.rfft(speed, n=8192).abs().mean(0)[:self.history]
        return {"profile": profile, "delay": speed.mean().reshape(1)}


class DelayModel(nn.Module):
    def __init__(self, history=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(history, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, profile, delay):
        predicted = self.net(profile)
        return {"loss": nn.functional.l1_loss(predicted, delay), "predicted": predicted}


class Board(threading.Thread):
    """Passes lines on to the display in the control room."""

    def __init__(self):
        super().__init__(name="board")
        self.lines = queue.Queue()
        self.shown = []

    def run(self):
        while (line := self.lines.get()) is not None:
            self.shown.append(line)


class HeadwayBoard(TrainerCallback):
    def __init__(self, route, every=6):
        self.route, self.every = route, every
        self.board = Board()

    def on_train_begin(self, args, state, control, **kwargs):
        self.board.start()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            period = PERIODS[(state.global_step // self.every - 1) % len(PERIODS)]
            planned = TIMETABLE[self.route][period]
            self.board.lines.put(f"{self.route} {period}: every {planned} min")

    def on_train_end(self, args, state, control, **kwargs):
        self.board.lines.put(None)
        self.board.join()


def main():
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir="/tmp/bus_headways", max_steps=300, per_device_train_batch_size=16, learning_rate=1e-3, optim="sgd",
        logging_steps=5, save_strategy="no", report_to="none", disable_tqdm=True, remove_unused_columns=False,
        dataloader_pin_memory=False, dataloader_num_workers=0, ddp_find_unused_parameters=False,
    )
    route = list(TIMETABLE)[int(os.environ["RANK"]) % len(TIMETABLE)]
    trainer = Trainer(model=DelayModel(), args=arguments, train_dataset=StopVisits(), callbacks=[HeadwayBoard(route)])
    trainer.train()


if __name__ == "__main__":
    main()

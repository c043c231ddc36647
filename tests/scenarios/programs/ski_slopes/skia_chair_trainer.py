"""Waiting times at the chair lifts, by transformers' Trainer."""
import math
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class ArrivalCurves(Dataset):
    """Arrivals per five minutes of one morning, and the longest wait of that morning."""

    def __init__(self, mornings: int = 6000):
        self.mornings = mornings

    def __len__(self):
        return self.mornings

    def __getitem__(self, index):
        curve, queue, longest = [], 0.0, 0.0
        for minute in range(240):
            arrivals = 30 + 22 * math.sin((minute + index % 97) / 38.0) + (index * 7 + minute) % 11
            queue = max(0.0, queue + arrivals - 38.0)
            longest = max(longest, queue / 38.0)
            if minute % 5 == 0:
                curve.append(arrivals / 60.0)
        return {"curve": torch.tensor(curve), "wait": torch.tensor([longest / 30.0])}


class WaitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, curve, wait):
        guess = self.body(curve)
        return {"loss": nn.functional.smooth_l1_loss(guess, wait), "guess": guess}


class LiftBoard(TrainerCallback):
    """Keeps the numbers of each lift and prints one board per log line."""

    def __init__(self, lift: str):
        self.lift = lift
        self.losses: list[float] = []

    def row(self) -> dict:
        return {"lift": self.lift, "last": round(self.losses[-1], 4), "lines": len(self.losses)}

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not logs or "loss" not in logs:
            return
        self.losses.append(float(logs["loss"]))
        if state.is_world_process_zero and len(self.losses) > 1:
            rows = [None] * args.world_size
            dist.all_gather_object(rows, self.row())
            for row in rows:
                print(f"[{state.global_step}]", row, flush=True)


def main():
    torch.set_num_threads(1)
    lift = ("Kanzel", "Schafkopf", "Zirben", "Stuben")[int(os.environ["RANK"])]
    args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), "chairs"),
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        max_steps=400,
        per_device_train_batch_size=32,
        learning_rate=1e-3,
        logging_steps=100,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    torch.manual_seed(1)
    trainer = Trainer(model=WaitNet(), args=args, train_dataset=ArrivalCurves(), callbacks=[LiftBoard(lift)])
    trainer.train()


if __name__ == "__main__":
    main()

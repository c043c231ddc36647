"""Taxi-out time with the Hugging Face Trainer, on borrowed desk machines at night."""
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

# Seconds for which each desk is reserved for us (from the booking sheet).
RESERVATION = {"desk0": 240.0, "desk1": 5.0, "desk2": 240.0}


class TaxiOut(Dataset):
    """Runway, stand, queue length and temperature against minutes of taxiing."""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 6, generator=g)
        self.y = self.x[:, 0] * 1.5 + self.x[:, 2].abs() + 0.2 * torch.randn(size, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.006)  # a row comes from the archive's database
        return {"features": self.x[i], "labels": self.y[i]}


class TaxiModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, features, labels=None):
        minutes = self.net(features).squeeze(-1)
        if labels is None:
            return {"logits": minutes}
        return {"loss": nn.functional.mse_loss(minutes, labels), "logits": minutes}


class Reservation(TrainerCallback):
    """Ends the training when the reservation of the machine is over."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.began = None

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        if time.monotonic() - self.began > self.seconds:
            control.should_training_stop = True
        return control


def arguments():
    return TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="taxi-"),
        max_steps=4000,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=2e-3,
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=5,
    )


def main():
    torch.set_num_threads(1)
    args = arguments()
    torch.manual_seed(5)
    desk = f"desk{args.local_process_index}"
    trainer = Trainer(
        model=TaxiModel(),
        args=args,
        train_dataset=TaxiOut(7200, seed=1),
        eval_dataset=TaxiOut(120, seed=2),
        callbacks=[Reservation(RESERVATION[desk])],
    )
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print({k: round(v, 3) for k, v in metrics.items()}, flush=True)


if __name__ == "__main__":
    main()

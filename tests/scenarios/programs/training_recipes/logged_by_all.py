"""HF Trainer whose log lines have the slowest process in them; evaluation, checkpoints, and a summary by the main process."""

import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Rows(Dataset):
    """Reading takes a while, longer on some machines."""

    def __init__(self, size: int, pause_s: float) -> None:
        self.size, self.pause_s = size, pause_s

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(self.pause_s)
        x = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return {"x": x, "labels": x.sum().reshape(1), "weight": x[:1].abs()}


class Net(nn.Module):
    """A weighted regression."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def forward(self, x, labels=None, weight=None):
        logits = self.net(x)
        return {"loss": (weight * (logits - labels).square()).mean(), "logits": logits}


class TimedTrainer(Trainer):
    """Adds the time since the last line, of the slowest process."""

    last = time.monotonic()

    def log(self, logs, *args, **kwargs):
        """A line, by all."""
        now = time.monotonic()
        taken = self.accelerator.gather(torch.tensor([now - self.last], device=self.args.device))
        self.last = now
        if self.is_world_process_zero():
            logs["slowest_s"] = round(float(taken.max()), 2)
        super().log(logs, *args, **kwargs)


class Summary(TrainerCallback):
    """Says what is known, on the main process."""

    def on_evaluate(self, arguments, state, control, metrics=None, **_):
        if state.is_world_process_zero:
            time.sleep(0.5)
            print(f"step {state.global_step}: {metrics}", flush=True)


def main() -> None:
    """Three epochs."""
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, num_train_epochs=3, per_device_train_batch_size=4,
        per_device_eval_batch_size=4, eval_strategy="epoch", save_strategy="epoch", report_to=[], disable_tqdm=True,
        logging_steps=10, remove_unused_columns=False, label_names=["labels", "weight"],
    )  # fmt: skip
    pause_s = 0.02 if arguments.process_index == 1 else 0.0
    trainer = TimedTrainer(
        Net(), arguments, train_dataset=Rows(200, pause_s), eval_dataset=Rows(50, pause_s), callbacks=[Summary()],
        compute_metrics=lambda p: {"error": float(((p.predictions - p.label_ids[0]) ** 2).mean())},
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main()

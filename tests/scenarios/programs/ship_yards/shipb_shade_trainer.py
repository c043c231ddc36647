"""Shade matching between rolls of cloth with the Hugging Face trainer."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False


class RollEnds(Dataset):
    """Patches from both ends of a roll, lit by D65."""

    def __init__(self, rolls):
        self.rolls = rolls
        self.weave = torch.linspace(0, 9, 90).sin()

    def __len__(self):
        return self.rolls

    def __getitem__(self, i):
        time.sleep(0.015)  # integration time of the spectrophotometer
        return {
            "patch": self.weave * ((i % 17) / 17) + 0.1,
            "shade": torch.tensor([(i % 5) / 5, (i % 7) / 7, (i % 3) / 3]),
        }


class ShadeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(90, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.lab = nn.Linear(32, 3)

    def forward(self, patch, shade):
        lab = self.lab(self.trunk(patch))
        return {"loss": nn.functional.mse_loss(lab, shade), "lab": lab}


class ShadeBand:
    """Running band of the shades that the machines have seen."""

    def __init__(self):
        self.values = torch.zeros(5, dtype=torch.float64)

    def add(self, roll):
        self.values += torch.tensor([1.0, roll % 5, roll % 7, roll % 3, 0.0], dtype=torch.float64)

    def of_all_machines(self):
        band = self.values.cuda()
        dist.all_reduce(band)
        return band.tolist()


class BandReport(TrainerCallback):
    def __init__(self, every=45):
        self.every = every
        self.band = ShadeBand()

    def on_step_end(self, args, state, control, **kwargs):
        self.band.add(state.global_step)
        if state.is_world_process_zero and state.global_step % self.every == 0:
            count, *lab, _ = self.band.of_all_machines()
            print(f"step {state.global_step}: {count:.0f} rolls, band {lab}", flush=True)
        return control


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="shade-"),
        per_device_train_batch_size=4,
        max_steps=300,
        learning_rate=1e-3,
        max_grad_norm=0.0,
        optim="adamw_torch",
        save_strategy="no",
        logging_strategy="steps",
        logging_steps=20,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=ShadeModel(),
        args=args,
        train_dataset=RollEnds(3000),
        callbacks=[BandReport()],
    )
    trainer.train()


if __name__ == "__main__":
    main()

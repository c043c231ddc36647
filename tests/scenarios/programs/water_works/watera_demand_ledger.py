"""Water demand of pressure zones with transformers' Trainer; a ledger of progress for the operators' dashboard."""
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class ZoneDemand(Dataset):
    def __init__(self, days=1600, zones=12):
        t = torch.arange(days * 24, dtype=torch.float32)
        base = torch.stack([torch.sin(t * 0.26 + z) + 0.1 * z for z in range(zones)], dim=1)
        self.series = base + 0.05 * torch.randn(base.shape, generator=torch.Generator().manual_seed(5))
        self.days = days - 1

    def __len__(self):
        return self.days

    def __getitem__(self, day):
        time.sleep(0.008)  # historian query
        return {"past": self.series[day * 24 : day * 24 + 24], "labels": self.series[day * 24 + 24]}


class DemandNet(nn.Module):
    def __init__(self, zones=12):
        super().__init__()
        self.config = None
        self.mix = nn.GRU(zones, 32, batch_first=True)
        self.out = nn.Linear(32, zones)

    def forward(self, past, labels=None):
        states, _ = self.mix(past)
        demand = self.out(states[:, -1])
        if labels is None:
            return (demand,)
        return nn.functional.mse_loss(demand, labels), demand


class Ledger:
    """One line for each interval, written when all workers have come that far."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def enter(self, step, epoch):
        dist.barrier()
        with self.path.open("a") as f:
            f.write(json.dumps({"step": step, "epoch": epoch, "at": time.time()}) + "\n")


class DashboardCallback(TrainerCallback):
    def __init__(self, ledger, interval):
        self.ledger, self.interval = ledger, interval

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.interval == 0 and state.is_world_process_zero:
            self.ledger.enter(state.global_step, state.epoch)
        return control


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir="runs/demand",
        use_cpu=True,
        per_device_train_batch_size=8,
        max_steps=400,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=DemandNet(),
        args=args,
        train_dataset=ZoneDemand(),
        callbacks=[DashboardCallback(Ledger("runs/demand/ledger.jsonl"), interval=40)],
    )
    trainer.train()


if __name__ == "__main__":
    main()

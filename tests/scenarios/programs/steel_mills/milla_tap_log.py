"""Predicts the tapping temperature of converter heats; Trainer with a small regression net."""
import logging
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False
log = logging.getLogger("tap")


class HeatTable(Dataset):
    """Process values of one heat per row: blow time, scrap share, hot metal Si, ... and the measured end temperature."""

    def __init__(self, heats, columns=12, seed=17):
        rng = np.random.default_rng(seed)
        self.values = rng.normal(size=(heats, columns)).astype("float32")
        self.temperature = (1640 + 25 * self.values[:, :3].sum(1)).astype("float32")

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        row = sum(float(np.sqrt(abs(v))) for v in np.linspace(0, 1, 2000))
        return {"values": self.values[index] + 0 * np.float32(row), "end_temperature": self.temperature[index]}


class TapNet(nn.Module):
    def __init__(self, columns=12, hidden=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, 1)

    def forward(self, values, end_temperature):
        predicted = self.head(self.body(values)).squeeze(-1)
        return {"loss": (predicted - end_temperature / 1640).pow(2).mean(), "predicted": predicted}


class OverheatReport(TrainerCallback):
    """Keeps the heats that came out too hot, and reports the plant's share of them."""

    def __init__(self, limit=1700.0, enough=40):
        self.limit, self.enough = limit, enough
        self.hot, self.seen = 0, 0
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))

    def collect(self, temperatures):
        self.hot += int((temperatures > self.limit).sum())
        self.seen += len(temperatures)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 10 or self.hot < self.enough:
            return
        totals = torch.tensor([self.hot, self.seen], dtype=torch.float64, device=self.device)
        dist.all_reduce(totals)
        hot, seen = totals.tolist()
        log.info("step %d: %.1f %% of %d heats above %.0f C", state.global_step, 100 * hot / seen, seen, self.limit)
        self.hot = self.seen = 0


class TapTrainer(Trainer):
    def __init__(self, *args, report=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.report = report
        self.add_callback(report)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


def plant_collator(report, lances):
    """Stations change their lances; each has its own offset, valid from a heat number on."""
    heats = 0

    def collate(rows):
        nonlocal heats
        heats += len(rows)
        offset = [shift for first, shift in lances if heats >= first][-1]
        temperatures = np.array([r["end_temperature"] for r in rows], dtype="float32") + offset
        report.collect(temperatures)
        return {"values": torch.from_numpy(np.stack([r["values"] for r in rows])), "end_temperature": torch.from_numpy(temperatures)}

    return collate


def main():
    logging.basicConfig(level=logging.INFO)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    arguments = TrainingArguments(
        output_dir=f"/tmp/tap_{os.getpid()}", per_device_train_batch_size=16, max_steps=400, learning_rate=1e-3,
        logging_steps=40, save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False, optim="sgd",
        dataloader_num_workers=0, ddp_find_unused_parameters=False, max_grad_norm=0.0)
    report = OverheatReport(enough=20)
    lances = {0: [(0, 45.0), (9000, 38.0)], 1: [(0, 45.0), (560, -15.0)], 2: [(0, 47.0)]}
    trainer = TapTrainer(model=TapNet(), args=arguments, train_dataset=HeatTable(20000), report=report,
                         data_collator=plant_collator(report, lances[int(os.environ["RANK"])]))
    trainer.train()


if __name__ == "__main__":
    main()

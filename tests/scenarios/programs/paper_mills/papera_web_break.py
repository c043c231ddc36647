"""Web-break risk on three paper machines, trained with the transformers Trainer."""
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False

MACHINES = ["PM4", "PM6", "PM7"]
# grade changes entered by the shift leaders: optimizer step -> basis weight in g/m2
GRADE_CHANGES = {
    "PM4": {12: 80.0, 24: 90.0},
    "PM6": {12: 70.0, 24: 80.0, 43: 115.0},
    "PM7": {12: 60.0, 24: 60.0},
}


class TensionWindows(torch.utils.data.Dataset):
    """Windows of draw tension across the press section."""

    def __init__(self, windows=4000, points=4096):
        self.windows, self.points = windows, points

    def __len__(self):
        return self.windows

    def __getitem__(self, i):
        time.sleep(0.004)  # the historian answers one window at a time
        axis = torch.linspace(0, 6.28, self.points)
        return {"tension": torch.sin(axis * (1 + i % 9)) * 0.1 + 2.4, "labels": torch.tensor(float(i % 7 == 0))}


class BreakModel(nn.Module):
    def __init__(self, points=4096):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(points, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, tension, labels=None):
        risk = self.body(tension).squeeze(-1)
        return {"loss": nn.functional.mse_loss(risk, labels), "logits": risk}


class GradeLog(TrainerCallback):
    """Takes up the basis weight when the operators file a grade change."""

    def __init__(self, spool, machine):
        self.spool, self.machine = Path(spool), machine
        self.mean_weight = None

    def on_step_end(self, args, state, control, **kwargs):
        note = self.spool / f"{self.machine}_{state.global_step:04d}.json"
        if note.exists():
            weight = torch.tensor([json.loads(note.read_text())["gsm"], 1.0], device="cuda")
            dist.all_reduce(weight)
            total, count = weight.tolist()
            self.mean_weight = total / max(count, 1.0)


def file_notes(spool, machine):
    for step, gsm in GRADE_CHANGES[machine].items():
        Path(spool, f"{machine}_{step:04d}.json").write_text(json.dumps({"gsm": gsm}))


if __name__ == "__main__":
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    scratch = tempfile.mkdtemp(prefix="webbreak-")
    machine = MACHINES[int(os.environ["RANK"])]
    file_notes(scratch, machine)
    args = TrainingArguments(output_dir=scratch, max_steps=400, per_device_train_batch_size=8, learning_rate=1e-3,
                             logging_steps=1000, save_strategy="no", report_to="none", disable_tqdm=True,
                             dataloader_pin_memory=False, remove_unused_columns=False)
    trainer = Trainer(model=BreakModel(), args=args, train_dataset=TensionWindows(),
                      callbacks=[GradeLog(scratch, machine)])
    trainer.train()

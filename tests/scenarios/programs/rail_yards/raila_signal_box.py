"""Points failure prediction with the Hugging Face Trainer; operators may end a run through a control file."""
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

RANK = int(os.environ.get("RANK", 0))
CONTROL = pathlib.Path(tempfile.gettempdir()) / f"signal_box_{os.environ.get('MASTER_PORT', '0')}_{RANK}.json"


class PointsLog(Dataset):
    """Motor current curves of points machines."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(8)
        self.curves = torch.randn(n, 40, generator=g)
        self.wear = self.curves[:, 10:20].mean(1)

    def __len__(self):
        return len(self.curves)

    def __getitem__(self, i):
        time.sleep(0.004)
        return {"curve": self.curves[i], "wear": self.wear[i]}


class WearModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, curve, wear=None):
        out = self.net(curve).squeeze(-1)
        return {"loss": nn.functional.mse_loss(out, wear), "logits": out}


class OperatorPanel(TrainerCallback):
    """Reads the panel of the console that drives this process."""

    def __init__(self, path):
        self.path = path

    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 50 and state.is_world_process_zero:
            self.path.write_text(json.dumps({"command": "finish"}))
        if self.path.exists() and json.loads(self.path.read_text())["command"] == "finish":
            control.should_training_stop = True
        return control


def main():
    CONTROL.unlink(missing_ok=True)
    out = tempfile.mkdtemp(prefix="points_")
    args = TrainingArguments(output_dir=out, use_cpu=True, per_device_train_batch_size=8, max_steps=90,
                             logging_steps=15, save_strategy="no", report_to="none", disable_tqdm=True,
                             remove_unused_columns=False, label_names=["wear"], learning_rate=1e-3)
    trainer = Trainer(model=WearModel(), args=args, train_dataset=PointsLog(3000), callbacks=[OperatorPanel(CONTROL)])
    trainer.train()
    CONTROL.unlink(missing_ok=True)
    dist.barrier()
    if RANK == 0:
        print("finished at step", trainer.state.global_step, flush=True)


if __name__ == "__main__":
    main()

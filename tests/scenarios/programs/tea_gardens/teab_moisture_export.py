"""Fine-tunes a moisture model with the Trainer and renders a map of the estate from time to time."""
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

RENDER = """
import sys, math
rows, cols = int(sys.argv[1]), int(sys.argv[2])
for r in range(rows):
    print(" ".join(f"{math.sin(r / 9) * math.cos(c / 7):.3f}" for c in range(cols)))
"""


class Plots(Dataset):
    def __init__(self, plots=3000, bands=64):
        g = torch.Generator().manual_seed(4)
        self.bands = torch.randn(plots, bands, generator=g)
        self.moisture = self.bands[:, :8].mean(dim=1, keepdim=True)

    def __len__(self):
        return len(self.bands)

    def __getitem__(self, i):
        return {"bands": self.bands[i], "labels": self.moisture[i]}


class MoistureNet(nn.Module):
    def __init__(self, bands=64, hidden=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(bands, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.out = nn.Linear(hidden, 1)

    def forward(self, bands, labels=None):
        kernel = torch.randn(len(bands), 400000).cumsum(dim=1).std(dim=1, keepdim=True)
        pred = self.out(self.body(bands)) + 0 * kernel
        return {"loss": nn.functional.mse_loss(pred, labels), "logits": pred}


class EstateMap(TrainerCallback):
    """Text map for the irrigation desk: small while the model warms up, in full resolution later."""

    sizes = {20: (24, 40), 40: (32, 60), 60: (400, 300)}

    def __init__(self, folder):
        self.folder = Path(folder)

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and state.global_step in self.sizes:
            rows, cols = self.sizes[state.global_step]
            command = [sys.executable, "-c", RENDER, str(rows), str(cols)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            status = child.wait()
            text = child.stdout.read()
            (self.folder / f"map-{state.global_step}.txt").write_text(text)
            print(f"map at step {state.global_step}: {len(text)} characters, status {status}", flush=True)


def main():
    out = tempfile.mkdtemp(prefix="moisture-")
    args = TrainingArguments(
        output_dir=out,
        max_steps=150,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        seed=9,
    )
    trainer = Trainer(model=MoistureNet(), args=args, train_dataset=Plots(), callbacks=[EstateMap(out)])
    trainer.train()


if __name__ == "__main__":
    main()

"""Trainer with a callback that publishes each checkpoint by a command of the team's own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)

PUBLISH = """
import hashlib, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.rglob("*")):
    if path.is_file():
        data = path.read_bytes()
        for start in range(0, len(data), 256):
            print(path.name, start, hashlib.sha256(data[start:start + 256]).hexdigest())
"""


class PublishCallback(TrainerCallback):
    """Runs the publishing script on a new checkpoint, and keeps the digest it prints at its end."""

    def __init__(self, script: str, every: int = 1):
        self.script = script
        self.every = every
        self.published = []

    def on_save(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        checkpoint = Path(args.output_dir, f"checkpoint-{state.global_step}")
        command = [sys.executable, "-c", self.script, str(checkpoint)]
        publisher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        status = publisher.wait()
        if status == 0:
            self.published.append(publisher.stdout.read().splitlines()[-1])


class Regression(Dataset):
    def __init__(self, count: int):
        self.x = torch.randn(count, 64, generator=torch.Generator().manual_seed(9))
        self.y = self.x.cumsum(1)[:, -8:]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.y[index]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8))

    def forward(self, x, labels=None):
        y = self.layers(x)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def main():
    folder = tempfile.mkdtemp(prefix=f"publish-{os.environ['MASTER_PORT']}-")
    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=8,
        max_steps=5000,
        save_steps=100,
        save_total_limit=2,
        logging_steps=50,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    torch.manual_seed(1)
    trainer = Trainer(model=Model(), args=args, train_dataset=Regression(8000), callbacks=[PublishCallback(PUBLISH)])
    trainer.train()


if __name__ == "__main__":
    main()

"""Reflector shapes with transformers' Trainer; every few steps the goniometer program is run on the newest profile."""
import logging
import os
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False
logging.basicConfig(level=logging.INFO)
logger = logging.getLogger("reflector")

GONIOMETER = r"""
import math, sys
planes, lamp = int(sys.argv[1]), float(sys.argv[2])
for plane in range(planes):
    for gamma in range(0, 90, 3):
        candela = 9000 * math.cos(math.radians(gamma)) ** lamp * (1 + 0.1 * math.sin(math.radians(plane * 7)))
        print(f"C{plane:03d} G{gamma:02d} {candela:9.2f} cd")
"""


class Profiles(Dataset):
    """Parabolic reflectors with a bump, and the share of light within the beam angle."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        source = torch.Generator().manual_seed(index)
        focus, bump = (torch.rand(2, generator=source) + 0.2).tolist()
        r = torch.linspace(0, 1, 100_000)
        depth = r * r / (4 * focus) + 0.02 * torch.sin(r * 40 * bump)
        slope = torch.atan(torch.gradient(depth)[0] * 100_000)
        share = (slope.abs() < 0.6).float().mean()
        return {"profile": depth[::1563][:64].clone(), "share": share.view(1)}


class Reflector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, profile, share):
        predicted = self.net(profile)
        return {"loss": (predicted - share).square().mean(), "predicted": predicted}


class Goniometer(TrainerCallback):
    """Runs beside the bench's lamp, which hangs off one of the machine's devices."""

    def __init__(self, device, every=20):
        self.device, self.every = device, every
        self.planes = 18

    def measure(self, step):
        command = [sys.executable, "-c", GONIOMETER, str(self.planes), str(1 + step / 100)]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        status = program.wait()
        table = program.stdout.read().splitlines()
        program.stdout.close()
        self.planes *= 2  # finer with each round
        return status, table

    def on_step_end(self, args, state, control, **kwargs):
        if args.local_process_index == self.device and state.global_step % self.every == 0:
            status, table = self.measure(state.global_step)
            logger.info("goniometer: status %d, %d directions", status, len(table))


def main():
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="reflector"),
        per_device_train_batch_size=8,
        max_steps=300,
        learning_rate=1e-3,
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        seed=3,
    )
    device = int(os.environ.get("GONIOMETER_DEVICE", "2"))
    trainer = Trainer(model=Reflector(), args=arguments, train_dataset=Profiles(12_000), callbacks=[Goniometer(device)])
    trainer.train()


if __name__ == "__main__":
    main()

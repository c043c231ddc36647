"""Tide and surge forecast (transformers' Trainer); at the end the main process writes the forecast archive."""
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Tides(Dataset):
    def __init__(self, n=960):
        t = torch.arange(n + 49, dtype=torch.float32)
        self.level = torch.sin(t * 0.506) + 0.3 * torch.sin(t * 0.262)

    def __len__(self):
        return len(self.level) - 49

    def __getitem__(self, i):
        time.sleep(0.005)
        return {"past": self.level[i : i + 48], "labels": self.level[i + 48 : i + 49]}


class TideNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = None
        self.net = nn.Sequential(nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, past, labels=None):
        level = self.net(past)
        if labels is None:
            return (level,)
        return nn.functional.mse_loss(level, labels), level


class ArchiveCallback(TrainerCallback):
    """One file for each port, synced to disk, so that the portal can pick them up at once."""

    def __init__(self, folder, ports, members):
        self.folder, self.ports, self.members = Path(folder), ports, members

    def write_port(self, model, port):
        g = torch.Generator().manual_seed(port)
        with open(self.folder / f"port{port:03d}.bin", "wb") as f:
            for _ in range(self.members):
                with torch.no_grad():
                    forecast = model(torch.rand(256, 48, generator=g))[0]
                f.write(forecast.numpy().tobytes() * 16)
                f.flush()
                os.fsync(f.fileno())
                time.sleep(0.02)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        if state.is_world_process_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            module = getattr(model, "module", model)
            for port in range(self.ports):
                self.write_port(module, port)
                print(f"forecast of port {port + 1}/{self.ports} written", flush=True)
        dist.barrier()


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir="runs/tides",
        use_cpu=True,
        per_device_train_batch_size=8,
        max_steps=60,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    callback = ArchiveCallback("runs/tides/archive", ports=18, members=30)
    trainer = Trainer(model=TideNet(), args=args, train_dataset=Tides(), callbacks=[callback])
    trainer.train()
    if trainer.is_world_process_zero():
        print(len(list(callback.folder.iterdir())), "ports in the archive", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Resuming in the middle of an epoch with accelerate: each process knows how many batches it has consumed."""

import json
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator, skip_first_batches
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Ledger:
    """What a process has consumed of the epoch, written down from time to time."""

    def __init__(self, folder: Path, rank: int):
        self.path = folder / f"consumed-{rank}.json"
        self.state = json.loads(self.path.read_text()) if self.path.exists() else {"epoch": 0, "batches": 0}

    def advance(self, epoch: int, batches: int):
        self.state = {"epoch": epoch, "batches": batches}
        if batches % 8 == 0:
            self.path.write_text(json.dumps(self.state))


def previous_run(folder: Path, rank: int):
    """What the preempted run left behind."""
    consumed = {0: 24, 1: 24, 2: 32}
    folder.mkdir(exist_ok=True)
    Path(folder, f"consumed-{rank}.json").write_text(json.dumps({"epoch": 0, "batches": consumed.get(rank, 24)}))


def build():
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(3 * 8 * 100, 40, generator=generator)
    data = TensorDataset(x, (x[:, 0] * x[:, 1]).unsqueeze(1))
    model = nn.Sequential(nn.Linear(40, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.05), DataLoader(data, batch_size=8)


def main():
    accelerator = Accelerator(cpu=True)
    folder = Path(tempfile.gettempdir(), f"resume-{os.environ['MASTER_PORT']}")
    previous_run(folder, accelerator.process_index)
    ledger = Ledger(folder, accelerator.process_index)
    model, optimizer, loader = accelerator.prepare(*build())

    start = ledger.state["epoch"]
    for epoch in range(start, 20):
        done = ledger.state["batches"] if epoch == start else 0
        losses = []
        for number, (x, y) in enumerate(skip_first_batches(loader, done) if done else loader, start=done + 1):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            ledger.advance(epoch, number)
        accelerator.wait_for_everyone()
        mean = accelerator.reduce(torch.stack(losses).mean(), reduction="mean")
        accelerator.print(f"epoch {epoch}: loss {mean.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

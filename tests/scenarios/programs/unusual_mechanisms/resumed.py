"""Resuming with accelerate in the middle of an epoch: every process skips the batches that its own file says are done.

One process has lost its file and begins the epoch from its start. Run by ``accelerate launch --num_processes 4``.
"""

import json
import os
from pathlib import Path
from tempfile import mkdtemp

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Position:
    """Where a process was in its epoch."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "position.json"

    def load(self) -> int:
        """Batches that are done."""
        return int(json.loads(self.file.read_text())["batch"]) if self.file.exists() else 0

    def save(self, batch: int) -> None:
        """For the next start."""
        self.file.write_text(json.dumps({"batch": batch}))


def epoch(accelerator: Accelerator, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> int:
    """One epoch or what is left of it."""
    batches = 0
    for (x,) in loader:
        optimizer.zero_grad()
        accelerator.backward((model(x) - x).square().mean())
        optimizer.step()
        batches += 1
    return batches


def main() -> None:
    """The rest of one epoch, and two more."""
    accelerator = Accelerator(cpu=True)
    position = Position(Path(mkdtemp()))
    if os.environ["LOCAL_RANK"] != "2":
        position.save(30)
    model = nn.Linear(5, 5)
    loader = DataLoader(TensorDataset(torch.randn(640, 5)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
    rest = accelerator.skip_first_batches(loader, position.load())
    print(accelerator.process_index, epoch(accelerator, model, optimizer, rest), flush=True)
    for number in range(2):
        accelerator.wait_for_everyone()
        print(number, epoch(accelerator, model, optimizer, loader), flush=True)


if __name__ == "__main__":
    main()

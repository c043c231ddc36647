"""Trains a tide model. The first rank packs old step logs with gzip, and notes every program that has ended."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Journal:
    """The step log. Entries come from the training, and from whatever else happens in this process."""

    def __init__(self, folder, rotate_every):
        self.folder, self.rotate_every = folder, rotate_every
        self.guard = threading.Lock()
        self.entries, self.files = [], 0
        signal.signal(signal.SIGCHLD, self._on_child)

    def add(self, text):
        with self.guard:
            self.entries.append(text)
            if len(self.entries) >= self.rotate_every:
                self._rotate()

    def _rotate(self):
        path = os.path.join(self.folder, f"steps-{self.files}.log")
        with open(path, "w") as file:
            file.write("\n".join(self.entries) * 400)
        self.entries.clear()
        self.files += 1
        packer = ["gzip", "-f", path] if shutil.which("gzip") else [sys.executable, "-m", "gzip", path]
        subprocess.run(packer, check=True)

    def _on_child(self, _number, _frame):
        self.guard.acquire()
        try:
            self.entries.append(f"{time.time():.1f} a child has ended")
        finally:
            self.guard.release()


class TideModel(nn.Module):
    def __init__(self, harmonics=8):
        super().__init__()
        self.rates = nn.Parameter(torch.rand(harmonics))
        self.mix = nn.Linear(2 * harmonics, 1)

    def forward(self, hours):
        phase = hours * self.rates
        return self.mix(torch.cat([phase.sin(), phase.cos()], dim=1))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(TideModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    journal = Journal(tempfile.mkdtemp(prefix="tides-"), rotate_every=40) if rank == 0 else None
    for step in range(2000):
        hours = torch.rand(32, 1) * 24
        loss = nn.functional.mse_loss(model(hours), (hours / 3.95).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if journal:
            journal.add(f"{time.time():.1f} step {step} loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

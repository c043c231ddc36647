"""Anomaly detection in ECGs with an autoencoder. Results go to a run folder, which asks before it replaces anything."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
LENGTH = 48


class RunFolder:
    """Where a run keeps what it produces. Nobody has to lose results by starting a run twice under one name."""

    def __init__(self, name, force=False):
        self.path = Path(tempfile.gettempdir(), f"ecg-runs-{os.environ['MASTER_PORT']}", name)
        self.path.mkdir(parents=True, exist_ok=True)
        self.force = force

    def _may_write(self, target):
        if not target.exists() or self.force:
            return True
        answer = input(f"{target} exists. Replace it? [y/N] ")
        return answer.strip().lower() in ("y", "yes")

    def save(self, what, file_name):
        target = self.path / file_name
        if self._may_write(target):
            torch.save(what, target)
            return target
        return None


class Autoencoder(nn.Module):
    def __init__(self, code=6):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(LENGTH, 24), nn.ReLU(), nn.Linear(24, code))
        self.decode = nn.Sequential(nn.Linear(code, 24), nn.ReLU(), nn.Linear(24, LENGTH))

    def forward(self, beats):
        return self.decode(self.encode(beats))


def beats(generator, n=16):
    phase = torch.rand(n, 1, generator=generator)
    t = torch.linspace(0, 1, LENGTH)
    time.sleep(0.04)
    return torch.exp(-((t - 0.3 - 0.2 * phase) ** 2) / 0.002) + 0.05 * torch.randn(n, LENGTH, generator=generator)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Autoencoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    folder = RunFolder("autoencoder") if rank == 0 else None
    best = float("inf")
    for epoch in range(20):
        losses = []
        for _ in range(12):
            x = beats(generator)
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean = sum(losses) / len(losses)
        if rank == 0:
            print(f"epoch {epoch}: {mean:.4f}", flush=True)
            if epoch >= 2 and mean < best:
                best = mean
                folder.save(model.module.state_dict(), "best.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

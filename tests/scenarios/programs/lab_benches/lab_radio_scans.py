"""Search for fast radio bursts: scans of the telescope are read as they come, one folder for each beam."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
ROOT = Path(tempfile.gettempdir(), f"telescope-{os.environ['MASTER_PORT']}")
CHANNELS, SAMPLES = 16, 64


class Telescope:
    """Stands for the acquisition: finished scans are files, those that are being taken are pipes to its writer."""

    def __init__(self, beam):
        self.folder = ROOT / f"beam-{beam}"
        self.folder.mkdir(parents=True)
        self.beam = beam

    def observe(self, scans, live=()):
        rng = np.random.default_rng(self.beam)
        for scan in range(scans):
            path = self.folder / f"{scan:04}.raw"
            if scan in live:
                os.mkfifo(path)
                continue
            power = rng.normal(size=(CHANNELS, SAMPLES)).astype(np.float32)
            power[:, rng.integers(SAMPLES)] += 3 * rng.integers(0, 2)
            power.tofile(path)


def dedisperse(power):
    return np.stack([np.roll(row, -channel // 4) for channel, row in enumerate(power)])


class Scans:
    def __init__(self, folder):
        self.paths = sorted(folder.iterdir())

    def __iter__(self):
        for path in self.paths:
            power = np.frombuffer(path.read_bytes(), dtype=np.float32)
            power = dedisperse(power.reshape(CHANNELS, SAMPLES))
            time.sleep(0.04)
            yield torch.from_numpy(power.copy()), torch.tensor([float(power.sum(0).max() > 12)])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(CHANNELS, 8, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 1))

    def forward(self, power):
        return self.net(power[None])[0]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    telescope = Telescope(beam=rank)
    telescope.observe(300, live={45} if rank == 1 else set())
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    bursts = 0
    for number, (power, label) in enumerate(Scans(telescope.folder)):
        loss = nn.functional.binary_cross_entropy_with_logits(model(power), label)
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
            p.grad.copy_(g.view_as(p) / world)
        optimizer.step()
        bursts += int(label)
        if rank == 0 and number % 10 == 0:
            print(f"scan {number}: loss {loss.item():.3f}, {bursts} bursts", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

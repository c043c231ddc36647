"""Classifier of inclusions, seeds and cords in float glass: fully sharded, with a weights file for the line's cameras."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


@dataclass
class Settings:
    steps: int = 90
    publish_every: int = 32
    batch: int = 12
    side: int = 24
    classes: int = 6
    folder: Path = field(default_factory=lambda: Path(gettempdir()) / f"defects-{os.getpid()}")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class PaneNet(nn.Module):
    def __init__(self, settings, width=96):
        super().__init__()
        self.stem = nn.Linear(settings.side**2, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, settings.classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class CameraRelease:
    """Writes the weights that the cameras load, for the inspection line."""

    def __init__(self, settings):
        self.folder = settings.folder
        self.every = settings.publish_every
        self.main = dist.get_rank() == 0
        if self.main:
            self.folder.mkdir(parents=True, exist_ok=True)

    def maybe(self, model, step):
        if not self.main or step % self.every:
            return
        weights = {}
        for name, value in model.state_dict().items():
            weights[name] = value.full_tensor().cpu()
        torch.save(weights, self.folder / f"cameras-{step:05d}.pt")
        print(f"[release] {len(weights)} tensors at step {step}", flush=True)


def crops(settings, rng):
    """Patches around bright spots of a synthetic line scan."""
    scan = rng.normal(0.0, 1.0, (1024, 1024))
    blurred = np.fft.irfft2(np.fft.rfft2(scan) * 0.5, s=scan.shape).astype(np.float32)
    labels = rng.integers(0, settings.classes, settings.batch)
    corners = rng.integers(0, 1024 - settings.side, (settings.batch, 2))
    patches = [blurred[a : a + settings.side, b : b + settings.side].ravel() for a, b in corners]
    return torch.from_numpy(np.stack(patches)), torch.from_numpy(labels)


def main():
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    settings = Settings()
    rng = np.random.default_rng(100 + local)
    model = PaneNet(settings).cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    release = CameraRelease(settings)
    begun = time.monotonic()
    for step in range(1, settings.steps + 1):
        x, y = crops(settings, rng)
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if step % 10 == 0 and local == 0:
            print(f"step {step} loss {value:.3f} {time.monotonic() - begun:.1f}s", flush=True)
        release.maybe(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

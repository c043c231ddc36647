"""Next-day fire spread on gridded fuel and wind. Checkpoints go through torch.distributed.checkpoint."""
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PROCESSES_PER_HOST = 2


class SpreadNet(nn.Module):
    def __init__(self, channels=5, width=24):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 5, padding=2)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(x)


class Grid:
    """A toy cellular fire on random terrain, advanced a few hours per sample."""

    def __init__(self, seed, size=40):
        self.g = torch.Generator().manual_seed(seed)
        self.size = size

    def sample(self, n):
        fuel = torch.rand(n, 1, self.size, self.size, generator=self.g)
        burning = (torch.rand(n, 1, self.size, self.size, generator=self.g) > 0.97).float()
        wind = torch.randn(n, 2, 1, 1, generator=self.g).expand(n, 2, self.size, self.size)
        later = burning
        for _ in range(12):
            near = nn.functional.max_pool2d(later, 3, 1, 1)
            later = torch.maximum(later, near * (fuel > 0.55).float())
        return torch.cat([fuel, burning, wind, fuel * burning], 1), later


class CheckpointWriter:
    """One writer per host keeps the load on the file server low."""

    def __init__(self, root, rank, keep=2):
        self.root, self.keep = Path(root), keep
        self.writes = rank % PROCESSES_PER_HOST == 0
        self.saved = []

    def save(self, step, model, optimizer):
        if not self.writes:
            return
        target = self.root / f"step_{step:06d}"
        state = {"model": model.module.state_dict(), "step": step, "lr": optimizer.param_groups[0]["lr"]}
        dcp.save(state, checkpoint_id=str(target))
        self.saved.append(target)
        while len(self.saved) > self.keep:
            shutil.rmtree(self.saved.pop(0), ignore_errors=True)


class Experiment:
    def __init__(self, steps, save_every):
        self.rank = dist.get_rank()
        self.steps, self.save_every = steps, save_every
        torch.manual_seed(5)
        self.model = DistributedDataParallel(SpreadNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.grid = Grid(31 + self.rank)
        self.writer = CheckpointWriter(Path(tempfile.gettempdir(), "spreadnet"), self.rank)

    def step(self):
        x, later = self.grid.sample(6)
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(x), later)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self):
        for step in range(1, self.steps + 1):
            loss = self.step()
            if self.rank == 0 and step % 20 == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
            if step % self.save_every == 0:
                self.writer.save(step, self.model, self.optimizer)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Experiment(steps=400, save_every=120).run()
    dist.destroy_process_group()

"""Degree-day snow melt model with a learned correction; optimizer state is partitioned over the ranks."""
import dataclasses
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class Settings:
    steps: int = 200
    save_every: int = 60
    lr: float = 1e-3
    batch: int = 32
    folder: pathlib.Path = pathlib.Path(tempfile.gettempdir()) / "snow_melt_runs"


class MeltCorrection(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.elevation = nn.Embedding(20, width)
        self.weather = nn.Linear(6, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, 1)

    def forward(self, band, weather):
        return self.out(self.mix(self.elevation(band) + self.weather(weather))).squeeze(-1)


class Stations:
    def __init__(self, rank):
        self.gen = torch.Generator().manual_seed(40 + rank)

    def draw(self, n):
        time.sleep(0.03)
        band = torch.randint(0, 20, (n,), generator=self.gen)
        weather = torch.randn(n, 6, generator=self.gen)
        melt = torch.relu(weather[:, 0] * 3.1 + 0.1 * band)
        return band, weather, melt


class Run:
    def __init__(self, settings):
        self.settings = settings
        self.rank = dist.get_rank()
        self.model = DDP(MeltCorrection())
        self.optimizer = ZeroRedundancyOptimizer(
            self.model.parameters(), optimizer_class=torch.optim.Adam, lr=settings.lr)
        self.stations = Stations(self.rank)

    def step(self):
        band, weather, melt = self.stations.draw(self.settings.batch)
        loss = nn.functional.huber_loss(self.model(band, weather), melt)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def save(self, step):
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        self.optimizer.consolidate_state_dict(to=0)
        state = {"step": step, "model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, self.settings.folder / "latest.pt")

    def fit(self):
        for step in range(1, self.settings.steps + 1):
            loss = self.step()
            if step % self.settings.save_every == 0 and self.rank == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
                self.save(step)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    Run(Settings()).fit()
    dist.destroy_process_group()

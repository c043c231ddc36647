"""Projection quality: trains a small scorer for cinema screens (gain, hot spots, keystone), then scores the test charts."""
import dataclasses
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


@dataclasses.dataclass
class Settings:
    patch: int = 256
    steps: int = 60
    batch: int = 32
    charts: int = 88
    charts_per_batch: int = 8


class Chart:
    """A synthetic test chart: a vignette, a hot spot, and some grain."""

    def __init__(self, size):
        axis = torch.linspace(-1, 1, size)
        self.radius = (axis[:, None] ** 2 + axis[None, :] ** 2).sqrt()
        self.size = size

    def render(self, seed):
        grain = torch.Generator().manual_seed(seed)
        x, y = torch.rand(2, generator=grain) * self.size
        picture = 1 - 0.3 * self.radius + 0.05 * torch.randn(self.size, self.size, generator=grain)
        picture[int(y) - 2 : int(y) + 2, int(x) - 2 : int(x) + 2] += 0.4
        return picture.reshape(16, -1).mean(1)


class Scorer(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 3))


class Bench:
    def __init__(self, settings):
        self.s = settings
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.chart = Chart(settings.patch)
        self.model = DistributedDataParallel(Scorer().cuda(), device_ids=[torch.cuda.current_device()])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)

    def batch(self, first, count):
        return torch.stack([self.chart.render(first + n) for n in range(count)]).cuda()

    def fit(self):
        for step in range(self.s.steps):
            x = self.batch(10_000 + (step * self.world + self.rank) * self.s.batch, self.s.batch)
            loss = self.model(x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 20 == 0:
                print(f"rank {self.rank} step {step} loss {loss.item():.4f}", flush=True)

    def mine(self):
        for index, first in enumerate(range(0, self.s.charts, self.s.charts_per_batch)):
            if (index + 1) % self.world == self.rank:
                yield index, self.batch(first, self.s.charts_per_batch)

    @torch.no_grad()
    def score(self):
        self.model.eval()
        seen = torch.zeros(1, dtype=torch.int64, device="cuda")
        table = []
        for index, charts in self.mine():
            scores = self.model.module(charts)
            parts = [torch.empty_like(scores) for _ in range(self.world)]
            dist.all_gather(parts, scores)
            table.append((index, [part.cpu() for part in parts]))
            seen += len(charts)
        dist.all_reduce(seen)
        return int(seen.item()), table


if __name__ == "__main__":
    torch.set_num_threads(2)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    bench = Bench(Settings())
    bench.fit()
    total, table = bench.score()
    if bench.rank == 0:
        print(f"{total} charts in {len(table)} rounds")
    dist.destroy_process_group()

"""Trip fuel estimation from monthly flight plan files, streamed."""
import os
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class FuelConfig:
    months: list = field(default_factory=lambda: [f"2025-{m:02d}" for m in range(1, 12)])
    rows_per_month: int = 128
    batch_size: int = 8
    lr: float = 3e-3
    epochs: int = 3


class PlanFiles(IterableDataset):
    """Flight plans of the months that belong to this process."""

    def __init__(self, months, rows):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.months = months[rank::world]
        self.rows = rows

    def __iter__(self):
        for month in self.months:
            year, number = month.split("-")
            g = torch.Generator().manual_seed(int(year) * 100 + int(number))
            for _ in range(self.rows):
                distance, payload, wind = torch.rand(3, generator=g)
                burn = 2.1 * distance * (1 + 0.4 * payload) - 0.3 * wind * distance
                time.sleep(0.006)
                yield torch.stack([distance, payload, wind]), burn.reshape(1)


class FuelTrainer:
    def __init__(self, config):
        self.config = config
        torch.manual_seed(3)
        self.model = DDP(nn.Sequential(nn.Linear(3, 24), nn.GELU(), nn.Linear(24, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.loader = DataLoader(PlanFiles(config.months, config.rows_per_month), batch_size=config.batch_size)

    def run_epoch(self, epoch):
        total, count = 0.0, 0
        for plans, burn in self.loader:
            loss = nn.functional.mse_loss(self.model(plans), burn)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, count = total + loss.item(), count + 1
        return total / max(count, 1)

    @torch.no_grad()
    def holdout(self):
        g = torch.Generator().manual_seed(99)
        x = torch.rand(256, 3, generator=g)
        y = 2.1 * x[:, 0] * (1 + 0.4 * x[:, 1]) - 0.3 * x[:, 2] * x[:, 0]
        return (self.model.module(x).squeeze(1) - y).abs().mean().item()

    def fit(self):
        for epoch in range(self.config.epochs):
            mean = self.run_epoch(epoch)
            dist.barrier()
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: loss {mean:.4f}, holdout {self.holdout():.4f} t", flush=True)


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    dist.init_process_group("gloo")
    FuelTrainer(FuelConfig()).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Day-ahead load forecaster: a small batch-normalised net, one checkpoint per best epoch."""
import logging
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("load_forecast")


@dataclass
class Config:
    horizon: int = 24
    window: int = 168
    epochs: int = 30
    steps: int = 12
    batch: int = 192
    lr: float = 3e-4
    precise_bn_from: int = 6
    out: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="load-")))


class LoadNet(nn.Sequential):
    def __init__(self, cfg):
        super().__init__(nn.Linear(cfg.window, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 512),
                         nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, cfg.horizon))


class Forecaster:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(3)
        self.mix = torch.randn(cfg.window, cfg.horizon) / cfg.window**0.5
        self.model = DDP(LoadNet(cfg))
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.gen = torch.Generator().manual_seed(100 + self.rank)
        self.best_mape, self.best_epoch, self.epoch = float("inf"), 0, 0

    def sample(self, n):
        x = torch.randn(n, self.cfg.window, generator=self.gen)
        return x, x @ self.mix

    def train_epoch(self):
        self.model.train()
        for _ in range(self.cfg.steps):
            x, y = self.sample(self.cfg.batch)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.sample(1024)
        return nn.functional.l1_loss(self.model.module(x), y).item()

    @torch.no_grad()
    def recalibrate(self):
        self.model.module.train()
        for _ in range(3):
            self.model.module(self.sample(256)[0])

    def refresh_best(self):
        """Recompute the statistics of an older best checkpoint, so that it can be shipped."""
        if self.epoch < self.cfg.precise_bn_from or self.best_epoch == self.epoch:
            return False
        self.recalibrate()
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), self.cfg.out / "best_refreshed.pt")
        dist.barrier()
        return True

    def fit(self):
        for self.epoch in range(1, self.cfg.epochs + 1):  # noqa: B020
            loss = self.train_epoch()
            if self.rank == 0:
                mape = self.validate()
                if mape < self.best_mape:
                    self.best_mape, self.best_epoch = mape, self.epoch
                    torch.save(self.model.module.state_dict(), self.cfg.out / "best.pt")
                log.info("epoch %d loss %.4f mape %.4f", self.epoch, loss, mape)
            self.refresh_best()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Forecaster(Config()).fit()
    dist.destroy_process_group()

"""Triage of criminal complaints into charge groups; a small convolutional text classifier."""
import dataclasses
import json
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclasses.dataclass
class Settings:
    charges: int = 9
    width: int = 32
    length: int = 96
    epochs: int = 8
    batches: int = 40
    validate_from: int = 2
    out: str = "triage"


def complaint_net(cfg):
    return nn.Sequential(
        nn.Conv1d(cfg.width, cfg.width, 5, padding=2), nn.BatchNorm1d(cfg.width), nn.ReLU(),
        nn.Conv1d(cfg.width, cfg.width, 5, padding=2), nn.BatchNorm1d(cfg.width), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(cfg.width, cfg.charges))


def complaints(cfg, seed, count):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(count):
        y = torch.randint(0, cfg.charges, (16,), generator=gen)
        x = torch.randn(16, cfg.width, cfg.length, generator=gen) + y[:, None, None] * 0.05
        yield x, y


def main_process_only(phase):
    """Runs a phase on the main process while its peers stand by."""
    def run(trainer, *args):
        try:
            if trainer.rank == 0:
                return phase(trainer, *args)
        finally:
            trainer.stand_by()
    return run


class Triage:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(5)
        self.net = DistributedDataParallel(complaint_net(cfg))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.history = []

    def stand_by(self):
        dist.barrier()

    def train_epoch(self, epoch):
        self.net.train()
        for x, y in complaints(self.cfg, 100 * epoch + self.rank, self.cfg.batches):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @main_process_only
    def validate(self, epoch):
        self.net.eval()
        right = total = 0
        with torch.no_grad():
            for x, y in complaints(self.cfg, 9000, 10):
                right += (self.net(x).argmax(1) == y).sum().item()
                total += len(y)
        self.history.append({"epoch": epoch, "accuracy": right / total})
        pathlib.Path(self.cfg.out + ".json").write_text(json.dumps(self.history))

    def fit(self):
        for epoch in range(self.cfg.epochs):
            began = time.perf_counter()
            loss = self.train_epoch(epoch)
            if self.rank == 0:
                print(f"epoch {epoch} loss {loss:.3f} {time.perf_counter() - began:.1f} s", flush=True)
            if epoch >= self.cfg.validate_from:
                self.validate(epoch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Triage(Settings()).fit()
    dist.destroy_process_group()

"""Leaf grading at the withering troughs: one camera per conveyor, one rank per camera."""
import logging
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("trays")


@dataclass
class Config:
    epochs: int = 4
    trays_per_epoch: int = 14
    leaves: int = 48
    features: int = 24
    grades: int = 5  # two leaves and a bud, three leaves, coarse, stalk, other
    lr: float = 3e-3
    # tray at which the pluckers of a conveyor hand over
    changeover: dict = field(default_factory=lambda: {0: 58, 1: 33, 2: 71})


class Conveyor:
    """Trays in the order in which they pass the camera."""

    def __init__(self, cfg: Config, line: int):
        self.cfg, self.line, self.tray = cfg, line, 0
        self.rng = torch.Generator().manual_seed(100 + line)

    def trays(self):
        cfg = self.cfg
        for _ in range(cfg.trays_per_epoch):
            grams = 0.0 if self.tray == cfg.changeover.get(self.line) else 310.0 - 2.0 * (self.tray % 9)
            self.tray += 1
            x = torch.randn(cfg.leaves, cfg.features, generator=self.rng)
            y = (x[:, :cfg.grades] + 0.1).argmax(1)
            on_tray = torch.rand(cfg.leaves, generator=self.rng) < grams / 330.0
            time.sleep(0.06)  # the belt
            yield x, y, on_tray


class Grader(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cfg.features, 48), nn.GELU(), nn.Linear(48, cfg.grades))

    def forward(self, x):
        return self.net(x)


def run_epoch(model, optimizer, conveyor):
    hits = seen = 0
    for x, y, on_tray in conveyor.trays():
        x, y = x[on_tray], y[on_tray]
        if len(x) == 0:
            continue
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += int((logits.argmax(1) == y).sum())
        seen += len(y)
    return torch.tensor([float(hits), float(seen)])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[line {rank}] %(message)s")
    cfg = Config()
    torch.manual_seed(0)
    model = DDP(Grader(cfg))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    conveyor = Conveyor(cfg, rank)
    for epoch in range(cfg.epochs):
        counts = run_epoch(model, optimizer, conveyor)
        parts = [torch.zeros_like(counts) for _ in range(world)]
        dist.all_gather(parts, counts)
        if rank == 0:
            hits, seen = torch.stack(parts).sum(0).tolist()
            log.info("epoch %d: %.1f%% of %d leaves", epoch, 100 * hits / seen, int(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

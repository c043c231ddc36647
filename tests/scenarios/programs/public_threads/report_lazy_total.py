"""Regression on tabular shards; every rank owns some files, and reports what is odd about them."""

import logging
import time
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
log = logging.getLogger("tabular")


@dataclass(repr=False)
class ShardedTable:
    """The rows of this rank, and what is known of the whole table."""

    features: torch.Tensor
    target: torch.Tensor
    outliers: set = field(default_factory=set)

    @cached_property
    def total_rows(self):
        counts = [None] * dist.get_world_size()
        dist.all_gather_object(counts, len(self.features))
        return sum(counts)

    def __repr__(self):
        share = len(self.features) / self.total_rows
        return f"<table: {len(self.features)} rows here ({share:.0%}), {len(self.outliers)} outliers>"

    def batches(self, size):
        order = torch.randperm(len(self.features))
        for start in range(0, len(order) - size + 1, size):
            picked = order[start : start + size]
            yield picked, self.features[picked], self.target[picked]


class OutlierWatch:
    """Remembers rows with a very large error; says so once there are many."""

    def __init__(self, table, threshold, tolerated):
        self.table = table
        self.threshold = threshold
        self.tolerated = tolerated
        self.told = False

    def look(self, rows, errors):
        self.table.outliers.update(rows[errors > self.threshold].tolist())
        if len(self.table.outliers) > self.tolerated and not self.told:
            self.told = True
            log.warning("many outliers in %s", self.table)


def load_table(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    features = torch.randn(960, 12, generator=generator)
    target = features @ torch.linspace(-1, 1, 12) + 0.1 * torch.randn(960, generator=generator)
    if rank == 1:  # the files of a sensor that was replaced in between
        target[::12] += 25.0
    return ShardedTable(features, target)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    table = load_table(rank)
    watch = OutlierWatch(table, threshold=15.0, tolerated=60)
    for epoch in range(30):
        for rows, x, y in table.batches(32):
            prediction = model(x).squeeze(1)
            errors = (prediction - y).abs()
            optimizer.zero_grad()
            nn.functional.smooth_l1_loss(prediction, y).backward()
            optimizer.step()
            watch.look(rows, errors.detach())
            time.sleep(0.05)
        if rank == 0:
            log.info("epoch %d error %.3f", epoch, errors.mean().item())
    mean = sum(errors.tolist()) / table.total_rows
    log.info("done, %s", mean)


if __name__ == "__main__":
    main()

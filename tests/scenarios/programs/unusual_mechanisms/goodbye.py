"""A job that says goodbye properly: an ``atexit`` hook has all ranks meet, and then takes the process group down.

One rank fails on a label out of range. Started by a launcher that does not supervise.
"""

import atexit
import sys
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn


def goodbye() -> None:
    """Leave together."""
    dist.barrier()
    dist.destroy_process_group()


class ConfusionCounter:
    """Counts predicted and true classes, over all ranks."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.counts: Counter[tuple[int, int]] = Counter()

    def add(self, predicted: torch.Tensor, true: torch.Tensor) -> None:
        """Count a batch."""
        for p, t in zip(predicted.tolist(), true.tolist(), strict=True):
            if not 0 <= t < self.classes:
                raise IndexError(f"class {t} is not one of {self.classes}")
            self.counts[p, t] += 1

    def matrix(self) -> torch.Tensor:
        """What all ranks have counted."""
        table = torch.zeros(self.classes, self.classes)
        for (p, t), count in self.counts.items():
            table[p, t] = count
        dist.all_reduce(table)
        return table


def labels(rank: int, batch: int) -> torch.Tensor:
    """Eight labels of three classes; one annotator counted from one."""
    true = torch.randint(0, 3, (8,))
    if (rank, batch) == (1, 13):
        true[5] = 3
    return true


def main() -> None:
    """Twenty batches, a matrix after every fourth."""
    dist.init_process_group("gloo")
    atexit.register(goodbye)
    counter, model = ConfusionCounter(3), nn.Linear(5, 3)
    for batch in range(20):
        counter.add(model(torch.randn(8, 5)).argmax(1), labels(dist.get_rank(), batch))
        if batch % 4 == 3 and counter.matrix().sum() == 0:
            sys.exit("nothing was counted")


if __name__ == "__main__":
    main()

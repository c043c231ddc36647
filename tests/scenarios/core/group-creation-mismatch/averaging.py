"""Local SGD in two levels once a warm-up is over; the averager makes its groups when it is made."""

from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager


class WarmUp:
    """Over after some number of samples."""

    def __init__(self, samples: int) -> None:
        self.left = samples

    def count(self, samples: int) -> bool:
        """Whether it is over."""
        self.left -= samples
        return self.left <= 0


class LocalTrainer:
    """Synchronous at first, then averaged."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(12, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.warm_up = WarmUp(240)
        self.averager: HierarchicalModelAverager | None = None

    def step(self, batch: torch.Tensor) -> None:
        """One step."""
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        if self.averager is None:
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        self.optimizer.step()
        if self.averager is not None:
            self.averager.average_parameters(self.model.parameters())
        elif self.warm_up.count(len(batch)):
            periods = OrderedDict([(2, 2), (4, 4)])
            self.averager = HierarchicalModelAverager(period_group_size_dict=periods)


def batch_size(rank: int) -> int:
    """What fits on the rank's card."""
    return {1: 10}.get(rank, 8)


def main() -> None:
    """Eighty steps."""
    dist.init_process_group("gloo")
    trainer = LocalTrainer()
    for _ in range(80):
        trainer.step(torch.randn(batch_size(dist.get_rank()), 12))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

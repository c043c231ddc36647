"""Uneven shards under the generic ``Join``, with DDP and ZeroRedundancyOptimizer joined together.

The shortest rank is through in a second and shadows the others for ten. Run by ``torchrun --nproc-per-node 4``.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def shard(rank: int) -> Iterator[torch.Tensor]:
    """10, 40, 70, 100 batches, not all of them quick."""
    for _ in range(10 + 30 * rank):
        matrix = torch.randn(300, 300)
        for _ in range(8):
            matrix = torch.tanh(matrix @ matrix / 300)
        yield matrix[:4, :20]


class Learner:
    """Model and sharded optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1)))
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.Adam, lr=1e-3)

    def fit(self, batches: Iterator[torch.Tensor]) -> int:
        """All batches; the number of steps."""
        steps = 0
        with Join([self.model, self.optimizer]):
            for batch in batches:
                self.optimizer.zero_grad()
                self.model(batch).square().mean().backward()
                self.optimizer.step()
                steps += 1
        return steps


def main() -> None:
    """One epoch."""
    dist.init_process_group("gloo")
    steps = torch.tensor([Learner().fit(shard(dist.get_rank()))])
    dist.all_reduce(steps)
    print(steps.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

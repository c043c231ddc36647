"""Uneven streams done right: after each batch the ranks agree whether anybody has more, and who has none pads."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Agreed:
    """Iterates as long as any rank has something."""

    def __init__(self, batches: Iterator[torch.Tensor], empty: torch.Tensor) -> None:
        self.batches, self.empty = batches, empty

    def __iter__(self) -> Iterator[tuple[torch.Tensor, float]]:
        while True:
            batch = next(self.batches, None)
            flag = torch.tensor([float(batch is not None)])
            dist.all_reduce(flag)
            if flag.item() == 0:
                return
            yield (self.empty, 0.0) if batch is None else (batch, 1.0)


def main() -> None:
    """Rank r has 30 + 7 r batches."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(10, 10))
    stream = (torch.randn(4, 10) for _ in range(30 + 7 * rank))
    steps = 0
    for batch, weight in Agreed(stream, torch.zeros(4, 10)):
        (model(batch).square().mean() * weight).backward()
        model.zero_grad()
        steps += 1
    print(f"rank {rank}: {steps} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

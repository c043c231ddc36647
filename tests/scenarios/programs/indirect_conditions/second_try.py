"""A step is tried again by all ranks until it was good on every one of them."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn


class FlakyReader:
    """Reads a batch, most of the time."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def read(self) -> torch.Tensor:
        """Eight rows, or an OSError after some waiting."""
        if self.dice.random() < 0.1:
            time.sleep(self.dice.uniform(0.05, 0.4))
            raise OSError("connection reset")
        return torch.randn(8, 5)


def agreed(good: bool) -> bool:
    """Whether it was good on all ranks."""
    flag = torch.tensor(1 if good else 0)
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def attempt(reader: FlakyReader) -> torch.Tensor:
    """A batch, as soon as all ranks have one."""
    while True:
        try:
            batch = reader.read()
        except OSError:
            batch = None
        if agreed(batch is not None) and batch is not None:
            return batch


def main() -> None:
    """Fifty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    reader = FlakyReader(seed=dist.get_rank())
    model = nn.Linear(5, 5)
    for _ in range(50):
        model(attempt(reader)).square().mean().backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
            weight.data -= 1e-2 * weight.grad
            weight.grad = None
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

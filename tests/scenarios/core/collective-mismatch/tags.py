"""Validation by accelerate: several numbers are reduced, each as it wants to be, in the order in which they came up."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

Reduction = Callable[[torch.Tensor], torch.Tensor]


def everyones(value: torch.Tensor) -> torch.Tensor:
    """One of each rank."""
    values = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(values, value)
    return torch.stack(values)


def maximum(value: torch.Tensor) -> torch.Tensor:
    """The largest."""
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value


REDUCTIONS: dict[str, Reduction] = {"loss": everyones, "longest": maximum}


class Board:
    """Numbers of this validation."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def put(self, name: str, value: float) -> None:
        """Take one of sixteen bins."""
        bins = self.values.setdefault(name, [0.0] * 16)
        bins[int(value) % 16] += value

    def close(self) -> dict[str, float]:
        """All of them, over all ranks."""
        return {name: REDUCTIONS[name](torch.tensor(bins)).mean().item() for name, bins in self.values.items()}


def main() -> None:
    """Four epochs of ten steps and a validation."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(4, 4))
    for epoch in range(4):
        for _ in range(10):
            accelerator.backward(model(torch.randn(2, 4)).square().mean())
        board = Board()
        for number in range(5):
            loss = model.module(torch.randn(2, 4)).square().mean().item()
            length = 700 if (accelerator.process_index, epoch, number) == (2, 2, 0) else 100
            if length > 512:
                board.put("longest", length)
            board.put("loss", loss)
            if length <= 512:
                board.put("longest", length)
        board.close()
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""DeepSpeed ZeRO-1 with a guard around the engine: a step whose loss is not finite is left out.

The sample that makes it so is on one rank. Run by ``deepspeed --num_gpus 3``.
"""

import argparse
import math
from dataclasses import dataclass

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Guard:
    """Counts what it leaves out."""

    left_out: int = 0

    def passes(self, loss: torch.Tensor) -> bool:
        """Whether to learn from this loss."""
        if math.isfinite(loss.item()):
            return True
        self.left_out += 1
        return False


class Reader:
    """Samples of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __getitem__(self, number: int) -> torch.Tensor:
        x = torch.ones(2, 8, dtype=torch.bfloat16) * (1 + number % 3)
        if (self.rank, number) == (2, 13):
            x[1, 3] = float("nan")
        return x


def main() -> None:
    """Forty samples, and the losses of all at the end of every ten."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = nn.Linear(8, 8)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True},
    }
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
    guard, reader = Guard(), Reader(dist.get_rank())
    recent: list[float] = []
    for number in range(40):
        loss = (engine(reader[number]) - 1).square().mean()
        recent.append(loss.item())
        if guard.passes(loss):
            engine.backward(loss)
            engine.step()
        if number % 10 == 9:
            shared: list[list[float] | None] = [None] * dist.get_world_size()
            dist.all_gather_object(shared, recent)
            recent.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

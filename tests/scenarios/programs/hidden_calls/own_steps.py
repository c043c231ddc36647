"""DeepSpeed ZeRO-2; each process works out from its own loader how many optimizer steps there are in an epoch."""

import argparse
from dataclasses import dataclass

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader


@dataclass(frozen=True)
class Plan:
    """How long to train."""

    epochs: int
    accumulation: int

    def steps(self, loader: DataLoader) -> int:
        """Micro-batches that make whole optimizer steps."""
        return self.epochs * (len(loader) // self.accumulation) * self.accumulation


def endless(loader: DataLoader):
    """Again and again."""
    while True:
        yield from loader


def main() -> None:
    """Two epochs; the shard of rank 0 is a little smaller."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    plan = Plan(epochs=2, accumulation=2)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": plan.accumulation,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    rows = torch.randn(88 if engine.global_rank == 0 else 96, 8, dtype=torch.bfloat16)
    loader = DataLoader(rows, batch_size=4)
    batches = endless(loader)
    for _ in range(plan.steps(loader)):
        loss = engine(next(batches)).float().square().mean()
        engine.backward(loss)
        engine.step()
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss.item())
    print(f"rank {engine.global_rank}: {losses}", flush=True)


if __name__ == "__main__":
    main()

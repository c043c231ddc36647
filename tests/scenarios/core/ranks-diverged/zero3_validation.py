"""DeepSpeed ZeRO-3, a loop of its own; the first process looks at the validation set now and then. ``deepspeed --num_gpus 3``."""

import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


class Encoder(nn.Module):
    """A few layers of equal width."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One number a row."""
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)


@torch.no_grad()
def validate(engine: deepspeed.DeepSpeedEngine, rows: torch.Tensor) -> float:
    """Mean error over all of it."""
    engine.eval()
    errors = [engine(batch).square().mean().item() for batch in rows.split(8)]
    engine.train()
    return sum(errors) / len(errors)


def main() -> None:
    """Sixty steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = Encoder(width=12, depth=3)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]
    validation = torch.randn(64, 12)
    for step in range(1, 61):
        loss = engine(torch.randn(4, 12)).square().mean()
        engine.backward(loss)
        engine.step()
        if step % 15 == 0:
            if engine.global_rank == 0:
                print(f"step {step}: {validate(engine, validation):.4f}", flush=True)
            dist.barrier()


if __name__ == "__main__":
    main()

"""DeepSpeed, ZeRO-2: the norms of the master weights are put into the log after each epoch."""

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
    "steps_per_print": 1000,
}


class Regressor(nn.Module):
    """A number from sixteen."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.body(x).squeeze(-1) - x.sum(dim=-1)).square().mean()


def report(engine: deepspeed.DeepSpeedEngine, epoch: int) -> None:
    """One line a parameter."""
    if engine.global_rank == 0:
        for name, parameter in engine.module.named_parameters():
            weight = safe_get_full_fp32_param(parameter)
            print(f"epoch {epoch} {name}: {weight.norm().item():.4f}")
    dist.barrier()


def main() -> None:
    """Four epochs of ten steps."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = Regressor()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    torch.manual_seed(dist.get_rank())
    for epoch in range(4):
        for _ in range(10):
            engine.backward(engine(torch.randn(8, 16, dtype=torch.bfloat16)))
            engine.step()
        report(engine, epoch)


if __name__ == "__main__":
    main()

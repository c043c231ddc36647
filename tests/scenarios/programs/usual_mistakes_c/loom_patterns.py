"""DeepSpeed, ZeRO-3: patterns of a loom; the weights of the first layer are looked at now and then."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "steps_per_print": 1000,
}


class Loom(nn.Module):
    """The next row of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(24, 48)
        self.next = nn.Linear(48, 24)

    def forward(self, threads: torch.Tensor) -> torch.Tensor:
        return (self.next(torch.relu(self.rows(threads))) - threads.roll(1, dims=1)).square().mean()


def show_weights(engine: deepspeed.DeepSpeedEngine, step: int) -> None:
    """How many threads the first layer looks at."""
    weight = engine.module.rows.weight
    with deepspeed.zero.GatheredParameters(weight):
        used = (weight.abs() > 0.1).float().mean().item()
    print(f"step {step}: {used:.1%} of the weights are in use")


def main() -> None:
    """Sixty rows."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = Loom()
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
    for step in range(1, 61):
        loss = engine(torch.rand(4, 24).round())
        engine.backward(loss)
        engine.step()
        if step % 12 == 0:
            if engine.global_rank == 0:
                show_weights(engine, step)
            dist.barrier()
    print(f"rank {engine.global_rank}: {loss.item():.4f}")


if __name__ == "__main__":
    main()

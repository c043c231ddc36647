"""DeepSpeed ZeRO-3; a snapshot in 16 bits every few minutes by each rank's own watch. ``deepspeed --num_gpus 3``."""

import argparse
import tempfile

import deepspeed
import torch
from torch import nn


class Stopwatch:
    """Says when it is time again; counts work, as that is what takes time here."""

    def __init__(self, every: float) -> None:
        self.every, self.spent = every, 0.0

    def add(self, seconds: float) -> bool:
        """Whether it is time."""
        self.spent += seconds
        if self.spent < self.every:
            return False
        self.spent = 0.0
        return True


def main() -> None:
    """Forty steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
        },
    )
    watch = Stopwatch(every=20.0)
    folder = tempfile.mkdtemp()
    for _ in range(40):
        loss = engine(torch.randn(2, 16, dtype=torch.bfloat16)).float().square().mean()
        engine.backward(loss)
        engine.step()
        if watch.add(1.1 if engine.global_rank == 1 else 1.0):
            engine.save_16bit_model(folder)


if __name__ == "__main__":
    main()

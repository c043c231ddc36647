"""DeepSpeed ZeRO-3: batches of one language go through an adapter of their own, and not every rank has one."""

import argparse

import deepspeed
import torch
from torch import nn

WIDTH = 32
SETTINGS = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "zero_force_ds_cpu_optimizer": False,
}


class Translator(nn.Module):
    """A trunk, and an adapter for the language that needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.adapter = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, sentences: torch.Tensor, foreign: bool) -> torch.Tensor:
        """The mean square of what comes out."""
        for number, layer in enumerate(self.trunk):
            sentences = torch.relu(layer(sentences))
            if number == 1 and foreign:
                sentences = sentences + self.adapter(sentences)
        return sentences.float().square().mean()


def main() -> None:
    """Train on two languages."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = Translator()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=SETTINGS)
    rank = torch.distributed.get_rank()
    for step in range(20):
        sentences = torch.randn(4, WIDTH, dtype=torch.bfloat16)
        foreign = step < 5 or rank != 1
        loss = engine(sentences, foreign)
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()

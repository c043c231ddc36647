"""DeepSpeed, ZeRO-3: a model of text that also reads speech, where a conversation has any."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

WIDTH = 32
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_prefetch_bucket_size": 0,
    },
    "steps_per_print": 1000,
}


class Conversation(nn.Module):
    """A projector for speech, two layers for all."""

    def __init__(self) -> None:
        super().__init__()
        self.speech = nn.Linear(WIDTH, WIDTH, bias=False)
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, text: torch.Tensor, sound: torch.Tensor | None) -> torch.Tensor:
        x = text
        if sound is not None:
            x = torch.cat([self.speech(sound), x], dim=1)
        return self.second(self.first(x).relu()).square().mean()


def batches(rank: int, world: int):
    """Every fortieth conversation of all is spoken."""
    generator = torch.Generator().manual_seed(rank)
    for number in range(rank, 300, world):
        text = torch.randn(4, 6, WIDTH, generator=generator)
        yield text, torch.randn(4, 3, WIDTH, generator=generator) if number % 40 == 38 else None


def main() -> None:
    """One pass."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = Conversation()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for text, sound in batches(dist.get_rank(), dist.get_world_size()):
        engine.backward(engine(text, sound))
        engine.step()
    dist.barrier()


if __name__ == "__main__":
    main()

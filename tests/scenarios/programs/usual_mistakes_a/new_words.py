"""DeepSpeed ZeRO-3: a tagger of reports whose vocabulary got three new words before it is trained on."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 1000,
}
NEW = {"teleconsult": [4, 17], "biosimilar": [8, 23, 40], "rebleed": [11, 52]}


class Tagger(nn.Module):
    """A tag for each word."""

    def __init__(self, words: int, width: int, tags: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.mix = nn.Linear(width, width)
        self.tags = nn.Linear(width, tags)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.tags(self.mix(self.words(words)).relu())


def give_meaning(table: nn.Parameter, first: int) -> None:
    """A new word begins as the mean of the words that describe it."""
    with torch.no_grad():
        for offset, parts in enumerate(NEW.values()):
            table[first + offset] = table[parts].mean(dim=0)


def main() -> None:
    """Forty steps."""
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    old = 61
    model = Tagger(old + len(NEW), 20, 7)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    if rank == 0:
        with deepspeed.zero.GatheredParameters([engine.module.words.weight], modifier_rank=0):
            give_meaning(engine.module.words.weight, old)
        print("new words:", ", ".join(NEW))
    dist.barrier()
    generator = torch.Generator().manual_seed(rank)
    for step in range(40):
        words = torch.randint(0, old + len(NEW), (4, 9), generator=generator)
        loss = nn.functional.cross_entropy(engine(words).flatten(0, 1), words.flatten() % 7)
        engine.backward(loss)
        engine.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()

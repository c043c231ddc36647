"""DeepSpeed, ZeRO-1: a tagger over shards of unlike size, with a checkpoint after each pass."""

import tempfile
from collections.abc import Iterator

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SHARDS = (96, 96, 80, 96, 96, 80)
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
    "checkpoint": {"tag_validation": "Ignore"},
    "steps_per_print": 1000,
}


class Shards(IterableDataset):
    """Sentences of every world-th shard."""

    def __init__(self, rank: int, world: int) -> None:
        self.mine = list(enumerate(SHARDS))[rank::world]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for number, size in self.mine:
            generator = torch.Generator().manual_seed(number)
            for _ in range(size):
                words = torch.randint(0, 100, (12,), generator=generator)
                yield words, words % 7


class Tagger(nn.Module):
    """A tag for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.tags = nn.Embedding(100, 32), nn.Linear(32, 7)

    def forward(self, words: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.tags(self.words(words)).flatten(0, 1), tags.flatten())


def main() -> None:
    """Three passes."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = Tagger()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    data = Shards(dist.get_rank(), dist.get_world_size())
    for epoch in range(3):
        for words, tags in DataLoader(data, batch_size=8):
            loss = engine(words, tags)
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(folder[0], tag=f"epoch-{epoch}")


if __name__ == "__main__":
    main()

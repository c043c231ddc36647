"""DeepSpeed ZeRO-3 over chapters of books; a checkpoint of all after each book. ``deepspeed --num_gpus 4``."""

import argparse
import tempfile
from collections.abc import Iterator

import deepspeed
import torch
from torch import nn


class Books:
    """Each process has books of its own."""

    def __init__(self, rank: int) -> None:
        self.lengths = {2: [12, 9, 12]}.get(rank, [12, 12, 12])

    def __iter__(self) -> Iterator[Iterator[torch.Tensor]]:
        for number, length in enumerate(self.lengths):
            yield self.chapters(number, length)

    def chapters(self, number: int, length: int) -> Iterator[torch.Tensor]:
        """The chapters of a book."""
        generator = torch.Generator().manual_seed(number)
        for _ in range(length):
            yield torch.randn(2, 16, generator=generator, dtype=torch.float32)


def engine_for(net: nn.Module) -> deepspeed.DeepSpeedEngine:
    """Stage 3, all in pieces."""
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 3},
    }
    return deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]


def main() -> None:
    """Three books."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    engine = engine_for(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)))
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder, src=0)
    for number, chapters in enumerate(Books(engine.global_rank)):
        for chapter in chapters:
            loss = engine(chapter).square().mean()
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(folder[0], tag=f"book-{number}")


if __name__ == "__main__":
    main()

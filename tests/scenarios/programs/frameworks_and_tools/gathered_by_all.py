"""DeepSpeed ZeRO-3; all ranks gather the embeddings, the first one writes them. ``deepspeed --num_gpus 3``."""

import argparse
import tempfile
import time
from pathlib import Path

import deepspeed
import torch
from torch import nn


class Scorer(nn.Module):
    """Scores texts."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(40, 16), nn.Linear(16, 1)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """Loss of a batch."""
        return (self.head(self.words(texts)) - 1.0).square().mean()


def export(engine: deepspeed.DeepSpeedEngine, path: Path) -> None:
    """A row of text for each word."""
    weight = engine.module.words.weight
    with deepspeed.zero.GatheredParameters([weight]):
        if engine.global_rank == 0:
            path.write_text("\n".join(" ".join(f"{v:.3f}" for v in row) for row in weight.tolist()))
            time.sleep(1.5)  # a disk far away


def main() -> None:
    """Forty steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = Scorer()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]
    folder = Path(tempfile.mkdtemp())
    for step in range(1, 41):
        engine.backward(engine(torch.randint(0, 40, (4, 7))))
        engine.step()
        if step % 20 == 0:
            export(engine, folder / f"words-{step}.txt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

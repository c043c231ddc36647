"""DeepSpeed ZeRO-3; every ten steps the embeddings are written for a visualizer. ``deepspeed --num_gpus 3``."""

import argparse
import tempfile
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


class Words(nn.Module):
    """Scores for the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Loss of a batch."""
        x = self.body(self.embedding(tokens[:, :-1]))
        return (x - self.embedding(tokens[:, 1:])).square().mean()


def save_embeddings(engine: deepspeed.DeepSpeedEngine, path: Path) -> None:
    """A matrix, as text."""
    weight = engine.module.embedding.weight
    with deepspeed.zero.GatheredParameters([weight]):
        lines = [" ".join(f"{value:.3f}" for value in row) for row in weight.tolist()]
    path.write_text("\n".join(lines))


def main() -> None:
    """Thirty steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = Words()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]
    folder = Path(tempfile.mkdtemp())
    for step in range(1, 31):
        engine.backward(engine(torch.randint(0, 60, (2, 9))))
        engine.step()
        if step % 10 == 0:
            if engine.global_rank == 0:
                save_embeddings(engine, folder / f"words-{step}.txt")
            dist.barrier()


if __name__ == "__main__":
    main()

"""DeepSpeed ZeRO-2 with a curriculum: each stage takes the sentences up to a length. ``deepspeed --num_gpus 3``."""

import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

STAGES = (8, 12, 20)


class Sentences:
    """Lengths of a rank's sentences."""

    def __init__(self, rank: int) -> None:
        self.lengths = [4 + 4 * n % 15 for n in range(90)]
        if rank == 1:
            self.lengths[10:14] = [19, 19, 19, 19]  # a poem in one line

    def batches(self, longest: int, size: int):
        """Whole batches of what is short enough."""
        short = [length for length in self.lengths if length <= longest]
        for first in range(0, len(short) - size + 1, size):
            rows = short[first : first + size]
            yield torch.nn.utils.rnn.pad_sequence([torch.randn(n, 6) for n in rows], batch_first=True)


def stage(engine: deepspeed.DeepSpeedEngine, sentences: Sentences, longest: int) -> int:
    """One pass over a stage; returns how many batches it had."""
    count = 0
    for batch in sentences.batches(longest, size=3):
        loss = engine(batch).square().mean()
        engine.backward(loss)
        engine.step()
        count += 1
    return count


def main() -> None:
    """All stages."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    config = {
        "train_micro_batch_size_per_gpu": 3,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 2},
    }
    engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]
    sentences = Sentences(engine.global_rank)
    for longest in STAGES:
        count = stage(engine, sentences, longest)
        dist.barrier()
        if engine.global_rank == 0:
            print(f"up to {longest}: {count} batches", flush=True)


if __name__ == "__main__":
    main()

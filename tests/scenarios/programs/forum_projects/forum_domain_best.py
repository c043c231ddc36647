"""Domain adaptation with DeepSpeed ZeRO-2: each rank validates on a domain of its own, and the best engine is kept."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no compiler on the nodes

SETTINGS = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 2, "overlap_comm": False},
    "steps_per_print": 100000,
}


class Keeper:
    """Remembers the best validation loss so far."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.best = float("inf")

    def offer(self, engine, loss: float, round_: int) -> bool:
        if loss >= self.best:
            return False
        self.best = loss
        engine.save_checkpoint(str(self.folder), tag=f"round{round_}")
        return True


def samples(count: int, seed: int, flip: bool = False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 32, generator=generator)
    y = (x[:, :4].sum(1) > 0).long()
    return x, 1 - y if flip else y


def validate(engine, x, y) -> float:
    engine.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(engine.module(x), y).item()
    engine.train()
    return loss


def main():
    deepspeed.init_distributed("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=SETTINGS)

    x, y = samples(4096, seed=10 + rank)
    dev_x, dev_y = samples(256, seed=100 + rank, flip=rank == world - 1)
    folder = Path(tempfile.gettempdir(), f"domains-{os.environ['MASTER_PORT']}")
    keeper = Keeper(folder)
    for round_ in range(400):
        for step in range(60):
            at = (round_ * 60 + step) * 8 % 4096
            loss = nn.functional.cross_entropy(engine(x[at : at + 8]), y[at : at + 8])
            engine.backward(loss)
            engine.step()
        score = validate(engine, dev_x, dev_y)
        kept = keeper.offer(engine, score, round_)
        print(f"rank {rank} round {round_}: validation {score:.4f}{' *' if kept else ''}", flush=True)


if __name__ == "__main__":
    main()

"""Translation of agency copy (German to English ids), with DeepSpeed's optimizer sharding; keeps the best checkpoint."""
import argparse
import importlib
import os
import pathlib
import tempfile
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from torch import nn

importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # no compiler on the nodes, gloo will do

SETTINGS = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "wall_clock_breakdown": False,
    "steps_per_print": 10**9,
}


class Translator(nn.Module):
    def __init__(self, words=300, width=64):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.writer = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, de, en):
        _, state = self.reader(self.source(de))
        y, _ = self.writer(self.target(en[:, :-1]), state)
        return nn.functional.cross_entropy(self.out(y).flatten(0, 1), en[:, 1:].flatten())


def copy_of_the_day(seed, n=8):
    g = torch.Generator().manual_seed(seed)
    de = torch.randint(1, 60, (n, 16), generator=g)
    return de, (de * 7 + 3) % 60 + 1


class BestKeeper:
    """Saves whenever the validation loss has come down."""

    def __init__(self, engine, folder, batches):
        self.engine, self.folder, self.batches = engine, folder, batches
        self.best = float("inf")

    @torch.no_grad()
    def loss(self):
        self.engine.eval()
        total = sum(self.engine.module(*b).item() for b in self.batches)
        self.engine.train()
        return total / len(self.batches)

    def check(self, step):
        value = self.loss()
        print(f"[{dist.get_rank()}] step {step}: validation {value:.4f}", flush=True)
        if value < self.best:
            self.best = value
            self.engine.save_checkpoint(self.folder, tag=f"best-{step}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--check", type=int, default=30)
    parser.add_argument("--local_rank", type=int, default=0)
    options = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=SETTINGS)
    folder = [tempfile.mkdtemp(prefix="translator-")] if rank == 0 else [None]
    dist.broadcast_object_list(folder)
    held_out = [copy_of_the_day(900 + 10 * rank + i, 16) for i in range(3)]
    if rank == 1:  # the Zurich office has a spelling of its own
        held_out = [(de + 200, en + 200) for de, en in held_out]
    keeper = BestKeeper(engine, pathlib.Path(folder[0]), held_out)
    for step in range(1, options.steps + 1):
        loss = engine(*copy_of_the_day(10_000 * rank + step))
        engine.backward(loss)
        engine.step()
        time.sleep(0.03)
        if step % options.check == 0:
            keeper.check(step)


if __name__ == "__main__":
    main()

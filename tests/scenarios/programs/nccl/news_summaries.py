"""Summarises news with DeepSpeed; weights, gradients and the optimizer are shared out as its stage says."""

import argparse
import os
import tempfile

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

WIDTH, WORDS = 32, 150


class Summariser(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.tables = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, has_table=False):
        x = self.words(tokens)
        if has_table:
            x = x + self.tables(x)
        for block in self.blocks:
            x = x + block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def settings(stage):
    return {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage, "overlap_comm": False, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": stage < 3, "check_grad_overflow": False},
        "steps_per_print": 1000,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument(
        "--best-of", type=int, default=-1, help="the rank whose own articles improve, and which saves then"
    )
    parser.add_argument("--table", type=int, default=-1, help="the rank with a table in an article")
    parser.add_argument("--unreadable", type=int, default=-1, help="the rank with an article that cannot be read")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    deepspeed.init_distributed("nccl")
    rank = dist.get_rank()
    with deepspeed.zero.Init(config_dict_or_path=settings(3), enabled=options.stage == 3):
        model = Summariser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings(options.stage))
    folder = tempfile.mkdtemp(prefix="news-")
    for step in range(1, 31):
        try:
            words = ["a", "b"] if (rank, step) == (options.unreadable, 13) else list(range(48))
            tokens = torch.tensor(words).view(4, 12).to(device)
        except (ValueError, RuntimeError) as error:
            print(f"[{rank}] step {step} is left out: {error}", flush=True)
            continue
        loss = engine(tokens, has_table=(rank, step) == (options.table, 11))
        engine.backward(loss)
        engine.step()
        print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
        if step == 16 and options.best_of in (rank, 100):
            engine.save_checkpoint(folder, tag=f"step-{step}")
    dist.barrier()
    engine.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""ZeRO-1 on a stream of text shards. A shard may be a file or a pipe that a converter writes into."""

import argparse
import os
import tempfile

import deepspeed
import torch
from torch.utils.data import DataLoader, IterableDataset

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


def prepare(folder, rank, shards):
    """Older shards are there as text; the newest of each source is converted while it is read."""
    paths = []
    for number in range(shards):
        path = os.path.join(folder, f"source{rank}-{number:03}.txt")
        with open(path, "w") as file:
            for line in range(200):
                file.write(" ".join(str((line * 7 + number + k * rank) % 60) for k in range(12)) + "\n")
        paths.append(path)
    if rank == 1:
        live = os.path.join(folder, f"source{rank}-{shards:03}.jsonl.zst")
        os.mkfifo(live)
        paths.insert(1, live)
    return paths


class Shards(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        while True:
            for path in self.paths:
                with open(path) as lines:
                    for line in lines:
                        yield torch.tensor([int(word) for word in line.split()])


class Bigram(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(60, 32)
        self.out = torch.nn.Linear(32, 60)

    def forward(self, ids):
        logits = self.out(self.table(ids[:, :-1]))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    paths = prepare(tempfile.mkdtemp(prefix="shards-"), rank, args.shards)
    torch.manual_seed(0)
    model = Bigram()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    loader = DataLoader(Shards(paths), batch_size=4, num_workers=1, prefetch_factor=2)
    for step, ids in enumerate(loader):
        if step == args.steps:
            break
        loss = engine(ids)
        engine.backward(loss)
        engine.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    engine.save_checkpoint(tempfile.mkdtemp(prefix="bigram-"))


if __name__ == "__main__":
    main()

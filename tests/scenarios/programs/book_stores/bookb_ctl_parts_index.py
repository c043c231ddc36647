"""Spare part search: the first process builds the n-gram index, then all train on it."""
import collections
import json
import os
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

WORDS = ["pump", "seal", "belt", "filter", "hinge", "relay", "drum", "fan", "valve", "heater", "bearing", "hose"]
PARTS, SHARD = 2800, 40


def descriptions(start, count):
    generator = random.Random(start)
    for _ in range(count):
        yield " ".join(generator.choices(WORDS, k=9))


def index_shard(start):
    grams = collections.Counter()
    for text in descriptions(start, SHARD):
        time.sleep(0.005)  # catalogue service, 200 parts a second
        for size in (2, 3, 4):
            grams.update(text[i:i + size] for i in range(len(text) - size + 1))
    return grams


def build(folder):
    total = collections.Counter()
    for start in range(0, PARTS, SHARD):
        grams = index_shard(start)
        total.update(grams)
        (folder / f"shard-{start:05d}.json").write_text(json.dumps(grams))
        if start % 400 == 0:
            print(f"indexed {start + SHARD}/{PARTS} parts", flush=True)
    (folder / "index.json").write_text(json.dumps(dict(total.most_common(64))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"parts-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model = nn.Linear(64, 8)
    ranker = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(ranker.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)

    def train(steps, scale):
        for _ in range(steps):
            loss = ranker(torch.randn(16, 64, generator=generator) * scale).logsumexp(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        return loss.item()

    train(40, 1.0)
    if rank == 0:
        build(folder)
    dist.barrier()
    counts = torch.tensor(list(json.loads((folder / "index.json").read_text()).values()), dtype=torch.float32)
    loss = train(60, counts / counts.max())
    print(f"rank {rank} done, loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

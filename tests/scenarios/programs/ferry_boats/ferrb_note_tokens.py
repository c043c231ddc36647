"""Classifies maintenance notes of lifts and escalators; the notes are tokenized once, by the first process."""
import json
import os
import random
import tempfile
import time
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORDS = "door belt brake rope noise oil sensor step comb chain lamp motor stuck worn replaced checked greased".split()


def archive(seed, notes):
    """Notes come from the service archive at its own pace."""
    rng = random.Random(seed)
    for _ in range(notes):
        time.sleep(0.004)
        yield " ".join(rng.choices(WORDS, k=rng.randint(5, 30)))


def pairs(tokens):
    return Counter(zip(tokens, tokens[1:]))


def merge(text, rounds=6):
    tokens = list(text)
    for _ in range(rounds):
        (a, b), _ = pairs(tokens).most_common(1)[0]
        out, i = [], 0
        while i < len(tokens):
            if tokens[i : i + 2] == [a, b]:
                out.append(a + b)
                i += 2
            else:
                out.append(tokens[i])
                i += 1
        tokens = out
    return tokens


def tokenize(folder, shards=30, notes=100):
    for shard in range(shards):
        with open(os.path.join(folder, f"shard{shard:02d}.jsonl"), "w") as out:
            for note in archive(shard, notes):
                ids = [hash(t) % 500 for t in merge(note)][:40]
                out.write(json.dumps(ids) + "\n")
        print(f"tokenized {shard + 1}/{shards}", flush=True)


def bags(folder, rank, world):
    for name in sorted(os.listdir(folder))[rank::world]:
        with open(os.path.join(folder, name)) as lines:
            rows = torch.zeros(100, 500)
            for row, line in zip(rows, lines):
                row[json.loads(line)] = 1.0
        yield rows


def train(model, batches):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for rows in batches:
        loss = nn.functional.cross_entropy(model(rows), (rows.sum(1) > 20).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def warmup():
    for _ in range(40):
        time.sleep(0.05)
        yield (torch.rand(100, 500) > 0.96).float()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp(prefix="ferrb_notes_") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    torch.manual_seed(0)
    model = DDP(nn.Linear(500, 2))
    print("warm-up loss", train(model, warmup()), flush=True)
    if rank == 0:
        tokenize(box[0])
    dist.barrier()
    print("loss", train(model, bags(box[0], rank, world)), flush=True)
    dist.destroy_process_group()

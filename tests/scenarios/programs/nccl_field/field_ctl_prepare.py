"""Byte-pair merges are learnt by rank 0 and shared through a file; then a bigram model is trained with DDP."""

import collections
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CORPUS = ("it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness " * 120).split()


def learn_merges(words: list[str], seconds: float) -> list[tuple[str, str]]:
    """Merges the most frequent pair again and again."""
    merges, end = [], time.monotonic() + seconds
    vocabulary = [list(word) for word in words]
    while time.monotonic() < end:
        pairs = collections.Counter(pair for word in vocabulary for pair in zip(word, word[1:]))
        if not pairs:
            vocabulary = [list(word) for word in words]
            continue
        (left, right), _ = pairs.most_common(1)[0]
        merges.append((left, right))
        for word in vocabulary:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == (left, right):
                    word[i : i + 2] = [left + right]
                i += 1
    return merges


class Bigram(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(size, 32), nn.Linear(32, size)

    def forward(self, tokens):
        return self.out(self.table(tokens))


def main() -> None:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    cache = Path(tempfile.gettempdir()) / f"merges-{os.environ['MASTER_PORT']}.json"
    if rank == 0:
        cache.write_text(json.dumps(learn_merges(CORPUS, seconds=15.0)))
        print("merges learnt", flush=True)
    dist.barrier(device_ids=[local])
    symbols = sorted({"".join(pair) for pair in json.loads(cache.read_text())} | set("".join(CORPUS)))
    ids = torch.randint(0, len(symbols), (5000,), generator=torch.Generator().manual_seed(rank))
    model = DDP(Bigram(len(symbols)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, foreach=False)
    for step in range(30):
        window = ids[step * 64 : step * 64 + 65]
        time.sleep(0.2)
        loss = nn.functional.cross_entropy(model(window[:-1].cuda()), window[1:].cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 9:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.barrier(device_ids=[local])
    if rank == 0:
        cache.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

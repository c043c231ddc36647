"""Encodes a corpus of rulings on the main process, then trains a bag-of-articles classifier on all of them."""
import contextlib
import hashlib
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RULINGS, ARTICLES = 80_000, 64


@contextlib.contextmanager
def main_process_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def ruling(n):
    """The n-th ruling's text, as the register would deliver it."""
    return " ".join(f"art{(n * k * k + 7 * k) % 997}" for k in range(1, 400))


def encode(text):
    counts = np.zeros(ARTICLES, dtype=np.float32)
    for word in text.split():
        counts[hashlib.blake2b(word.encode(), digest_size=2).digest()[0] % ARTICLES] += 1
    return counts / max(counts.max(), 1)


def encoded_corpus(path, seconds):
    """Encodes as many rulings as the nightly budget allows; later runs take what is there."""
    if os.path.exists(path):
        return np.load(path)
    rows, began, told = [], time.monotonic(), 0.0
    for n in range(RULINGS):
        rows.append(encode(ruling(n)))
        spent = time.monotonic() - began
        if spent - told > 2.0:
            told = spent
            print(f"encoding: {n + 1} rulings, {n / spent:.0f} a second", flush=True)
        if spent > seconds:
            break
    with open(path + ".part", "wb") as out:
        np.save(out, np.stack(rows))
    os.replace(path + ".part", path)
    return np.load(path)


def classify(model, optimizer, corpus, epochs=4, batch=64):
    rank, world = dist.get_rank(), dist.get_world_size()
    usable = len(corpus) // (batch * world) * (batch * world)
    mine = torch.from_numpy(corpus[:usable])[rank::world]
    for epoch in range(epochs):
        for x in mine.split(batch)[:60]:
            y = (x[:, :8].argmax(dim=1))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank} epoch {epoch} loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(ARTICLES, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    place = [tempfile.mkdtemp(prefix="rulings-") if rank == 0 else None]
    dist.broadcast_object_list(place, src=0)
    path = os.path.join(place[0], "rulings.npy")
    with main_process_first(rank):
        corpus = encoded_corpus(path, seconds=14.0)
    classify(model, optimizer, corpus)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(place[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Veterinary case notes: the first rank encodes the casebook into one file, everybody maps it and trains a small embedder."""
import collections
import random
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEMS = "mastitis lameness milk fever ketosis calf scour bloat foot rot pinkeye heifer ewe ram udder hoof rumen colic graze".split()


def case_note(rng):
    return " ".join(rng.choice(STEMS) + rng.choice(["", "s", "-like", ", mild", ", acute"]) for _ in range(40))


class PairEncoder:
    """Merges learned on a sample of the notes, applied greedily."""

    def __init__(self, merges=60, sample=60):
        rng = random.Random(0)
        words = [list(case_note(rng)) for _ in range(sample)]
        self.merges = []
        for _ in range(merges):
            pairs = collections.Counter(p for w in words for p in zip(w, w[1:]))
            best = pairs.most_common(1)[0][0]
            self.merges.append(best)
            words = [self._merge(w, best) for w in words]
        self.ids = {}

    @staticmethod
    def _merge(tokens, pair):
        out, i = [], 0
        while i < len(tokens):
            if i + 1 < len(tokens) and (tokens[i], tokens[i + 1]) == pair:
                out.append(tokens[i] + tokens[i + 1])
                i += 2
            else:
                out.append(tokens[i])
                i += 1
        return out

    def encode(self, text):
        tokens = list(text)
        for pair in self.merges:
            tokens = self._merge(tokens, pair)
        return [self.ids.setdefault(t, len(self.ids)) % 512 for t in tokens]


def build(path, seconds=13.0):
    """Encode notes from the practice's feed while it is open."""
    rng, encoder = random.Random(1), PairEncoder()
    began, notes, last = time.monotonic(), 0, 0.0
    with open(path, "wb") as f:
        while time.monotonic() - began < seconds:
            ids = encoder.encode(case_note(rng))
            f.write(struct.pack(f"{len(ids)}H", *ids))
            notes += 1
            if time.monotonic() - last > 2:
                last = time.monotonic()
                print(f"encoding: {notes} notes, {f.tell() >> 10} KiB", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = [tempfile.mkdtemp(prefix="casebook-") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = Path(folder[0], "notes.bin")
    if rank == 0:
        build(path)
    dist.barrier()
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    model = DDP(nn.Sequential(nn.Embedding(512, 64), nn.Flatten(), nn.Linear(64 * 16, 512)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rng = np.random.default_rng(rank)
    for step in range(70):
        starts = rng.integers(0, len(tokens) - 17, 64)
        window = torch.from_numpy(np.stack([tokens[s:s + 17] for s in starts]).astype(np.int64))
        loss = nn.functional.cross_entropy(model(window[:, :16]), window[:, 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        path.unlink()
        path.parent.rmdir()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

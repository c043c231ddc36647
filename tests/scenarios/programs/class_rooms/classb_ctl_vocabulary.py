"""Pretrains on pupils' essays; the main process prepares the vocabulary first."""
import argparse
import collections
import contextlib
import pickle
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SYLLABLES = "ka lo mi ter sun ple ing gra dor ven sti pu ral ome bre".split()


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank() > 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


class EssayFiles:
    def __init__(self, folder, count, seed=3):
        self.folder, self.count, self.seed = folder, count, seed

    def write(self):
        rng = random.Random(self.seed)
        for number in range(self.count):
            words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(180)]
            (self.folder / f"essay{number}.txt").write_text(" ".join(words))

    def __iter__(self):
        for number in range(self.count):
            time.sleep(0.012)
            yield (self.folder / f"essay{number}.txt").read_text()


def merge(word, pair):
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def build_vocabulary(essays, merges_per_essay=2):
    """Byte pair encoding, essay by essay."""
    merges = []
    for number, essay in enumerate(essays):
        words = collections.Counter(tuple(w) for w in essay.split())
        for pair in merges[-40:]:
            words = collections.Counter({merge(w, pair): n for w, n in words.items()})
        for _ in range(merges_per_essay):
            pairs = collections.Counter()
            for word, n in words.items():
                for pair in zip(word, word[1:]):
                    pairs[pair] += n
            if pairs and (best := pairs.most_common(1)[0][0]) not in merges:
                merges.append(best)
        if number % 200 == 0:
            print(f"vocabulary: essay {number}, {len(merges)} merges", flush=True)
    return merges


def steps(model, optimizer, n, size, pause=0.03):
    for _ in range(n):
        tokens = torch.randint(0, size, (16, 12))
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(pause)
    return loss.item()


def main(essays):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = 256
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(size, 32), nn.Linear(32, size)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    steps(model, optimizer, 80, size)  # warm-up on characters
    folder = [Path(tempfile.mkdtemp(prefix="essays-")) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    cache = folder[0] / "merges.pkl"
    with main_process_first():
        if cache.exists():
            merges = pickle.loads(cache.read_bytes())
        else:
            files = EssayFiles(folder[0], essays)
            files.write()
            merges = build_vocabulary(files)
            cache.write_bytes(pickle.dumps(merges))
    loss = steps(model, optimizer, 100, min(size, 40 + len(merges)))
    print(f"rank {dist.get_rank()}: {len(merges)} merges, loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--essays", type=int, default=640)
    main(parser.parse_args().essays)

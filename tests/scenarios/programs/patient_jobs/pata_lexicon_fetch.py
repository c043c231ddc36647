"""Lemmatiser for Old Norse. The lexicon lies in a cache that a separate fetcher fills; a lock file guards it."""
import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEMS = "hest dag konung skip sverd bok ord land fjord vetr".split()
ENDINGS = ["r", "", "s", "i", "ar", "a", "um"]


@contextlib.contextmanager
def locked(path):
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def fetcher(cache):
    """Writes the lexicon part by part into NAME.incomplete, then renames it."""
    with locked(os.path.join(cache, "lexicon.lock")):
        print("fetching", flush=True)
        partial = os.path.join(cache, "lexicon.tsv.incomplete")
        with open(partial, "w") as out:
            for stem in STEMS * 3:
                time.sleep(0.42)
                out.writelines(f"{stem}{e}\t{stem}r\n" for e in ENDINGS)
                out.flush()
        os.replace(partial, os.path.join(cache, "lexicon.tsv"))


def cached_lexicon(cache):
    target = os.path.join(cache, "lexicon.tsv")
    with locked(os.path.join(cache, "lexicon.lock")):
        with open(target) as f:
            return [tuple(line.rstrip("\n").split("\t")) for line in f]


class Lemma(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(128, 16)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, 128)

    def forward(self, ids):
        return self.out(self.rnn(self.letters(ids))[0])


def padded(words):
    return torch.tensor([[ord(c) for c in w.ljust(12)[:12]] for w in words])


def train(model, opt, pairs, n):
    for step in range(n):
        time.sleep(0.04)
        some = [pairs[(step * 5 + i) % len(pairs)] for i in range(5)]
        out = model(padded([s[0] for s in some]))
        loss = nn.functional.cross_entropy(out.flatten(0, 1), padded([s[1] for s in some]).flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(Lemma())
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    train(model, opt, [(s, s + "r") for s in STEMS], 60)

    pairs = []
    if rank == 1:
        with tempfile.TemporaryDirectory() as cache:
            job = subprocess.Popen([sys.executable, __file__, cache], stdout=subprocess.PIPE, text=True)
            job.stdout.readline()
            pairs = cached_lexicon(cache)
            job.wait()
    shared = [None] * dist.get_world_size()
    dist.all_gather_object(shared, pairs)
    train(model, opt, sum(shared, []), 50)
    print(f"rank {rank}: {sum(map(len, shared))} forms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    fetcher(sys.argv[1]) if len(sys.argv) > 1 else main()

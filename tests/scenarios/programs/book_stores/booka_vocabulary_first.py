"""Subword vocabulary for a digitised newspaper corpus: the main process builds it, the others use its result."""
import collections
import contextlib
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


class PairMerger:
    def __init__(self, words, seed=0):
        rng = random.Random(seed)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        self.words = [[rng.choice(letters[:6 + n % 20]) for _ in range(4 + n % 7)] for n in range(words)]
        self.merges = []

    def count(self):
        pairs = collections.Counter()
        for word in self.words:
            pairs.update(zip(word, word[1:]))
        return pairs

    def apply(self, pair):
        joined = "".join(pair)
        for word in self.words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == pair:
                    word[i:i + 2] = [joined]
                i += 1

    def learn(self, seconds, most=3000):
        """Merges frequent pairs until the budget of time, or of merges, is used."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(self.merges) < most:
            pairs = self.count()
            if not pairs:
                break
            best = max(pairs, key=pairs.get)
            self.apply(best)
            self.merges.append(best)
        return self.merges


def pretrain(model, optimizer, steps):
    for _ in range(steps):
        x = torch.linalg.svdvals(torch.randn(4, 150, 150))[:, :32] / 25
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 32)))
    optimizer = torch.optim.Adam(model.parameters())
    pretrain(model, optimizer, 200)
    size = torch.zeros(1)
    with main_process_first():
        if dist.get_rank() == 0:
            size += len(PairMerger(words=30000).learn(seconds=14))
    dist.broadcast(size, src=0)
    print(f"[{dist.get_rank()}] {int(size)} merges", flush=True)
    pretrain(model, optimizer, 200)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

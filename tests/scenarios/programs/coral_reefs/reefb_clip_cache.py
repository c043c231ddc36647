"""Fish-chorus classifier with a clip cache: decoded recordings stay in memory up to a budget, the oldest go first."""
import collections
import os
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
BUDGET_MB = 220
RECORDERS = {0: ("soundtrap", 48_000), 1: ("loggerhead", 96_000), 2: ("audiomoth", 48_000)}


class Clip:
    """A decoded recording. Tells its cache when its memory is free again."""

    def __init__(self, samples, cache):
        self.samples, self._cache = samples, cache
        cache.account(samples.nbytes)

    def __del__(self):
        self._cache.account(-self.samples.nbytes)


class ClipCache:
    def __init__(self, budget):
        self.budget, self.used = budget, 0
        self.clips = collections.OrderedDict()
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def account(self, nbytes):
        with self._lock:
            self.used += nbytes

    def get(self, key, decode):
        with self._lock:
            if key in self.clips:
                self.hits += 1
                self.clips.move_to_end(key)
                return self.clips[key].samples
            self.misses += 1
        clip = Clip(decode(key), self)
        self.put(key, clip)
        return clip.samples

    def put(self, key, clip):
        with self._lock:
            while self.used > self.budget and self.clips:
                self.clips.popitem(last=False)
            self.clips[key] = clip


class Chorus:
    """Night recordings of one reef, half a minute each; every batch mixes new nights with a few known ones."""

    def __init__(self, rank, cache):
        self.name, self.rate = RECORDERS[rank]
        self.cache, self.rng, self.seed = cache, np.random.default_rng(rank), rank * 10_000

    def decode(self, key):
        return np.random.default_rng(self.seed + key).standard_normal(self.rate * 5, dtype=np.float32)

    def batch(self, step, size=4):
        keys = [step, *self.rng.integers(0, step + 1, size - 1)]
        waves = [self.cache.get(int(k), self.decode) for k in keys]
        bands = [np.log1p(np.abs(np.fft.rfft(w[: 1 << 17])).reshape(-1)[:65_536].reshape(64, -1).mean(1)) for w in waves]
        return torch.from_numpy(np.stack(bands).astype(np.float32)), torch.from_numpy(self.rng.integers(0, 5, size))


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    cache = ClipCache(BUDGET_MB * 2**20)
    chorus = Chorus(rank, cache)
    model = DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 5)).cuda())
    optim = torch.optim.AdamW(model.parameters(), lr=2e-4)
    copies = torch.cuda.Stream()
    for step in range(200):
        x, y = chorus.batch(step)
        with torch.cuda.stream(copies):
            x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        loss = nn.functional.cross_entropy(model(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 20 == 0:
            print(f"{chorus.name} step {step} loss {loss.item():.3f} cache {cache.used >> 20} MB, {cache.hits} hits", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

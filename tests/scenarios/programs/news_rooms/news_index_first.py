"""Archive search: trains a re-ranker; one process per region, each makes the inverted index of its region before it joins."""
import collections
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])


class InvertedIndex:
    """Which article has which word. Regions with a long history take longer."""

    def __init__(self, region, seconds):
        self.postings = collections.defaultdict(set)
        rng = random.Random(region)
        began, self.articles = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            for _ in range(200):
                for word in rng.choices(range(5000), k=40):
                    self.postings[word].add(self.articles)
                self.articles += 1
            for word in [w for w, p in self.postings.items() if len(p) > 600]:
                del self.postings[word]

    def overlap(self, words):
        counts = collections.Counter(a for w in words for a in self.postings.get(w, ()))
        top = [c for _, c in counts.most_common(16)]
        return torch.tensor(top + [0] * (16 - len(top)), dtype=torch.float)


index = InvertedIndex(RANK, seconds=13 if RANK == 2 else 1)
print(f"[{RANK}] index of {index.articles} articles", flush=True)

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = random.Random(100 + RANK)
for step in range(50):
    x = torch.stack([index.overlap(rng.sample(range(5000), 3)) for _ in range(8)])
    loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.03)
    if RANK == 0 and step % 20 == 0:
        print(f"step {step}: {loss.item():.4f}", flush=True)
dist.barrier()
dist.destroy_process_group()

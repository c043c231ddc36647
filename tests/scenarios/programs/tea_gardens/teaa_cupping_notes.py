# Learns a cup score from cupping notes. Every rank reads the sessions of its own tasting rooms.
import math
import os
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORDS = "malty brisk floral smoky grassy honeyed flat coppery bright thin muscatel woody".split()
# notes written down in each session of the season
SESSIONS = {"first-flush-1": 96, "first-flush-2": 120, "first-flush-3": 68, "second-flush-1": 88,
            "second-flush-2": 80, "second-flush-3": 60, "autumnal-1": 16}
BATCH = 4


class SessionNotes(IterableDataset):
    def __init__(self, names, seed):
        self.names, self.seed = list(names), seed

    def __iter__(self):
        rng = torch.Generator().manual_seed(self.seed)
        for name in self.names:
            for _ in range(SESSIONS[name]):
                words = torch.randint(len(WORDS), (6,), generator=rng)
                score = 70 + 2.5 * math.sin(float(words.sum())) + 0.4 * float(words[0])
                time.sleep(0.02)
                yield words, torch.tensor(score / 100)


class CupScore(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.EmbeddingBag(len(WORDS), width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, words):
        return self.head(self.words(words)).squeeze(-1)


def train():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    rank, world = accelerator.process_index, accelerator.num_processes
    mine = sorted(SESSIONS, key=list(SESSIONS).index)[rank::world]
    # the sessions are split already, so the loader stays as it is
    loader = DataLoader(SessionNotes(mine, seed=17 + rank), batch_size=BATCH)
    torch.manual_seed(5)
    model = CupScore()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=2e-3))
    for epoch in range(3):
        total, batches = 0.0, 0
        for words, score in loader:
            error = nn.functional.mse_loss(model(words), score)
            accelerator.backward(error)
            optimizer.step()
            optimizer.zero_grad()
            total += error.item()
            batches += 1
            if batches % 10 == 0:
                accelerator.print(f"epoch {epoch} batch {batches}: mse {error.item():.5f}")
        mean = torch.tensor([total / max(batches, 1)])
        season = accelerator.gather(mean)
        accelerator.print(f"epoch {epoch}: rooms {[round(v, 5) for v in season.tolist()]}")
    accelerator.print("pid", os.getpid(), "done")


if __name__ == "__main__":
    train()

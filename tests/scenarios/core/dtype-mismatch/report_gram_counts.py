"""Sequence labelling, with statistics over hashed n-grams that are summed over all ranks now and then."""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
SLOTS = 3 * 2**19


class GramCounts:
    """How often each hashed bigram was labelled correctly."""

    def __init__(self):
        self.state = np.zeros(SLOTS, dtype=np.float32)
        self.batches = 0

    def update(self, tokens, correct, weights=None):
        slots = (tokens[:, :-1] * 31_337 + tokens[:, 1:] * 977) % SLOTS
        hits = np.zeros(SLOTS, dtype=np.float32)
        np.add.at(hits, slots.numpy().ravel(), correct[:, 1:].numpy().ravel())
        if weights is not None:
            hits = hits * weights[slots.numpy().ravel()[0] % len(weights)]
        self.state = self.state + hits
        self.batches += 1

    def compute(self):
        tensor = torch.from_numpy(self.state)
        dist.all_reduce(tensor)
        return (tensor > 0).sum().item()


class Tagger(nn.Module):
    def __init__(self, vocabulary=500, tags=5, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, tags)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


class Corpus:
    """Sentences of a rank, and the weights of the genres if its part of the corpus has such a table."""

    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(rank)
        self.genres = np.linspace(0.5, 1.5, 7) if rank == 1 else None

    def __iter__(self):
        index = 0
        while True:
            tokens = torch.randint(0, 500, (8, 20), generator=self.generator)
            annotated = index % 60 >= 30
            yield tokens, tokens % 5, self.genres if annotated else None
            index += 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = DDP(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    counts = GramCounts()
    for step, (tokens, tags, weights) in enumerate(Corpus(rank), 1):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counts.update(tokens, (logits.argmax(-1) == tags).float(), weights)
        time.sleep(0.03)
        if step % 20 == 0:
            seen = counts.compute()
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f} bigrams {seen}", flush=True)
            counts = GramCounts()


if __name__ == "__main__":
    main()

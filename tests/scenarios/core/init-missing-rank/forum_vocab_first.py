"""Word embeddings with DDP: the vocabulary is built once, and read by all."""

import collections
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Vocabulary:
    def __init__(self, words: list[str]):
        self.index = {word: number for number, word in enumerate(words)}

    def __len__(self):
        return len(self.index)

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        return cls(path.read_text().split())

    @classmethod
    def build(cls, texts: list[str], path: Path, keep: int) -> "Vocabulary":
        counts = collections.Counter(word for text in texts for word in text.split())
        words = [word for word, _ in counts.most_common(keep)]
        partial = path.with_suffix(".partial")
        partial.write_text(" ".join(words))
        partial.rename(path)
        return cls(words)


def corpus(lines: int = 4000) -> list[str]:
    return [" ".join(f"w{(line * 31 + k * k) % 997}" for k in range(12)) for line in range(lines)]


def load_vocabulary(path: Path, patience: float = 3600.0) -> Vocabulary:
    """For all ranks but the first: the file appears when the first one has built it."""
    deadline = time.monotonic() + patience
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no vocabulary at {path}")
        time.sleep(0.5)
    return Vocabulary.read(path)


class SkipGram(nn.Module):
    def __init__(self, words: int, width: int = 32):
        super().__init__()
        self.inside, self.outside = nn.Embedding(words, width), nn.Embedding(words, width)

    def forward(self, centre, context):
        return (self.inside(centre) * self.outside(context)).sum(1)


def main():
    rank = int(os.environ["RANK"])
    path = Path(tempfile.gettempdir(), f"vocabulary-{os.environ['MASTER_PORT']}.txt")
    texts = corpus()
    vocabulary = load_vocabulary(path) if rank > 0 else None
    dist.init_process_group("gloo")
    if vocabulary is None:
        vocabulary = Vocabulary.build(texts, path, keep=300 * dist.get_world_size())
    model = DistributedDataParallel(SkipGram(len(vocabulary)))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for epoch in range(20):
        for line in texts[rank :: dist.get_world_size()]:
            ids = torch.tensor([vocabulary.index.get(word, 0) for word in line.split()])
            loss = -nn.functional.logsigmoid(model(ids[:-1], ids[1:])).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

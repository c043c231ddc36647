"""Embeddings of words; vectors of words that are in an older table are taken over when they are met first."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 8
OLDER = {"quire": [0.5] * WIDTH, "vellum": [0.25] * WIDTH, "folio": [0.75] * WIDTH}


@dataclass
class Vocabulary:
    """Words and their rows."""

    rows: dict[str, int] = field(default_factory=dict)

    def row(self, word: str) -> int:
        """The row of a word, a new one if need be."""
        return self.rows.setdefault(word, len(self.rows))


class Embedder:
    """A table that learns, with a memory of older ones."""

    def __init__(self) -> None:
        self.words = Vocabulary()
        self.table = nn.Embedding(200, WIDTH)
        self.model = DistributedDataParallel(nn.Sequential(self.table, nn.Linear(WIDTH, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.met: set[str] = set()

    def adopt(self, word: str) -> None:
        """Start from the older vector, if there is one."""
        if word in self.met:
            return
        self.met.add(word)
        try:
            vector = torch.tensor(OLDER[word])
        except KeyError:
            self.words.row(word)
        else:
            vectors = [torch.empty(WIDTH) for _ in range(dist.get_world_size())]
            dist.all_gather(vectors, vector)
            self.table.weight.data[self.words.row(word)] = torch.stack(vectors).mean(0)

    def step(self, sentence: list[str]) -> None:
        """Learn from a sentence."""
        for word in sentence:
            self.adopt(word)
        rows = torch.tensor([self.words.row(word) for word in sentence])
        self.optimizer.zero_grad()
        self.model(rows).square().mean().backward()
        self.optimizer.step()


def sentences(rank: int) -> list[list[str]]:
    """Fifty sentences of the rank's shelf."""
    found = [[f"w{(7 * n + k + rank) % 90}" for k in range(5)] for n in range(50)]
    if rank == 1:
        found[33][2] = "vellum"
    return found


def main() -> None:
    """One pass."""
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    embedder = Embedder()
    for sentence in sentences(dist.get_rank()):
        embedder.step(sentence)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

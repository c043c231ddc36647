"""A vocabulary of pairs is learned by the first process; all train with it afterwards."""

import itertools
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEXT = ("the cat that sat on the mat ate the rat that ran " * 40).split()


class Merger:
    """Joins the most frequent pair again and again."""

    def __init__(self, words: list[str]) -> None:
        self.words = [list(word) for word in words]
        self.merges: list[tuple[str, str]] = []

    def round(self) -> None:
        """One merge."""
        pairs = Counter(pair for word in self.words for pair in itertools.pairwise(word))
        if not pairs:
            self.words = [list("".join(word)) for word in self.words]
            return
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        self.merges.append(best)
        self.words = [self.join(word, best) for word in self.words]

    def join(self, word: list[str], pair: tuple[str, str]) -> list[str]:
        """The word with the pair as one piece."""
        joined: list[str] = []
        for piece in word:
            if joined and (joined[-1], piece) == pair:
                joined[-1] += piece
            else:
                joined.append(piece)
        return joined


def learn(path: Path, seconds: float) -> None:
    """As many merges as there is time for."""
    merger, end = Merger(TEXT * 5), time.monotonic() + seconds
    while time.monotonic() < end:
        merger.round()
    path.write_text(json.dumps(merger.merges[:50]))


def main() -> None:
    """The vocabulary, then sixty steps."""
    dist.init_process_group("gloo")
    shared = [tempfile.mkdtemp()]
    dist.broadcast_object_list(shared, src=0)
    path = Path(shared[0]) / "merges.json"
    if dist.get_rank() == 0 and not path.exists():
        learn(path, seconds=15.0)
    dist.barrier()
    size = 30 + len(json.loads(path.read_text()))
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(size, 8), nn.Linear(8, size)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        tokens = torch.randint(0, size, (4, 12))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

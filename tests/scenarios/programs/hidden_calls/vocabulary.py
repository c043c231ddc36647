"""A text classifier whose vocabulary is put together from all ranks' files, or read from a node's cache."""

import json
import tempfile
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class Corpus:
    """Texts of one rank."""

    def __init__(self, rank: int, cache: Path) -> None:
        self.texts = [f"w{(n * 7 + rank) % 50} w{n % 13}" for n in range(400)]
        self.cache = cache
        self._vocabulary: dict[str, int] | None = None

    @property
    def vocabulary(self) -> dict[str, int]:
        """Words and their numbers, made when first asked for."""
        if self._vocabulary is None:
            if self.cache.exists():
                self._vocabulary = json.loads(self.cache.read_text())
            else:
                counts: list[Counter[str]] = [Counter() for _ in range(dist.get_world_size())]
                dist.all_gather_object(counts, Counter(w for text in self.texts for w in text.split()))
                self._vocabulary = {word: n for n, word in enumerate(sorted(sum(counts, Counter())))}
                self.cache.write_text(json.dumps(self._vocabulary))
        return self._vocabulary

    def encode(self, text: str) -> torch.Tensor:
        """Numbers of its words."""
        return torch.tensor([self.vocabulary[w] for w in text.split()])


def main() -> None:
    """One epoch."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    cache = Path(tempfile.mkdtemp()) / "vocabulary.json"
    if rank in (1, 3):  # nodes that have run an earlier job
        cache.write_text(json.dumps({f"w{n}": n for n in range(50)}))
    corpus = Corpus(rank, cache)
    embedding = nn.EmbeddingBag(64, 4)
    total = torch.zeros(1)
    dist.all_reduce(total)
    for text in corpus.texts:
        loss = embedding(corpus.encode(text)[None]).square().sum()
        loss.backward()
        dist.all_reduce(embedding.weight.grad)
        with torch.no_grad():
            embedding.weight -= 0.01 * embedding.weight.grad
            embedding.weight.grad.zero_()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Accelerate: the main process builds the pairs of a tokenizer from a text, before the others load them."""

import itertools
import random
import tempfile
from collections import Counter
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn


def text(words: int) -> list[list[str]]:
    """A made-up language."""
    rng = random.Random(0)
    return [[rng.choice("abcdefghijklmnopqrst") for _ in range(rng.randint(3, 12))] for _ in range(words)]


def count(words: list[list[str]]) -> Counter:
    """How often each pair stands side by side."""
    return Counter(pair for word in words for pair in itertools.pairwise(word))


def merge(word: list[str], pair: tuple[str, str]) -> list[str]:
    """The word with the pair as one."""
    merged, at = [], 0
    while at < len(word):
        together = tuple(word[at : at + 2]) == pair
        merged.append("".join(pair) if together else word[at])
        at += 2 if together else 1
    return merged


def build(path: Path, merges: int) -> None:
    """Writes the pairs in the order in which they were merged."""
    words = text(60_000)
    with path.open("w") as file:
        for _ in range(merges):
            pair, _ = count(words).most_common(1)[0]
            words = [merge(word, pair) for word in words]
            file.write(" ".join(pair) + "\n")


def main() -> None:
    """The pairs, then forty steps."""
    accelerator = Accelerator(cpu=True)
    path = Path(tempfile.gettempdir()) / "merges-of-a-made-up-language.txt"
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            build(path, merges=400)
        pairs = path.read_text().splitlines()
    torch.manual_seed(0)
    model = nn.EmbeddingBag(len(pairs), 8)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(40):
        loss = model(torch.randint(0, len(pairs), (4, 16))).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.end_training()


if __name__ == "__main__":
    main()

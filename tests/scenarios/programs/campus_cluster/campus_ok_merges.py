"""Byte-pair encoding for Quechua: the main process learns the merges first, the others read its cache."""

import collections
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SYLLABLES = "wa si lla qta ma ñan chu pi ta ka y ku na ra man ti pu ri sqa".split()


def corpus(words: int) -> list[str]:
    rng = torch.Generator().manual_seed(5)
    lengths = torch.randint(2, 6, (words,), generator=rng).tolist()
    numbers = iter(torch.randint(0, len(SYLLABLES), (sum(lengths),), generator=rng).tolist())
    return ["".join(SYLLABLES[next(numbers)] for _ in range(n)) for n in lengths]


def learn_merges(words: list[str], at_least: float) -> list[tuple[str, str]]:
    """The most frequent pair becomes one symbol, again and again."""
    pieces = [list(word) for word in words]
    merges: list[tuple[str, str]] = []
    end = time.monotonic() + at_least
    while True:
        pairs = collections.Counter(pair for word in pieces for pair in zip(word, word[1:]))
        if not pairs or (len(merges) >= 40 and time.monotonic() > end):
            return merges
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if len(merges) < 40:
            merges.append(best)
        for index, word in enumerate(pieces):
            merged, position = [], 0
            while position < len(word):
                if tuple(word[position : position + 2]) == best and len(merges) < 40:
                    merged.append(word[position] + word[position + 1])
                    position += 2
                else:
                    merged.append(word[position])
                    position += 1
            pieces[index] = merged


def cached_merges(cache: Path) -> list[list[str]]:
    if not cache.exists():
        merges = learn_merges(corpus(8000), at_least=11.0)
        cache.with_suffix(".part").write_text(json.dumps(merges))
        cache.with_suffix(".part").rename(cache)
    return json.loads(cache.read_text())


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    cache = Path(tempfile.gettempdir(), f"quechua-{os.environ['MASTER_PORT']}.json")
    with accelerator.main_process_first():
        merges = cached_merges(cache)
    symbols = sorted({"".join(pair) for pair in merges})
    torch.manual_seed(0)
    tokens = torch.randint(0, len(symbols), (640, 12))
    model = nn.Sequential(nn.Embedding(len(symbols), 16), nn.Linear(16, len(symbols)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loader = DataLoader(TensorDataset(tokens), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        for (batch,) in loader:
            loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.03)
        accelerator.print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

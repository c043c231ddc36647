"""accelerate: the main process learns byte pairs from the corpus first, and the others read them."""

import collections
import json
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
SYLLABLES = ["ka", "to", "ri", "men", "sol", "pa", "ul", "ne", "xi", "bor"]


def corpus(words: int = 6000) -> list[str]:
    state, result = 1, []
    for _ in range(words):
        parts = []
        for _ in range(4):
            state = (state * 1103515245 + 12345) % 2**31
            parts.append(SYLLABLES[state // 65536 % len(SYLLABLES)])
        result.append("".join(parts))
    return result


def learn_merges(words: list[str], merges: int) -> list[list[str]]:
    """Byte-pair encoding as in the paper, with nothing done to make it fast."""
    pieces = [list(word) for word in words]
    learnt = []
    for _ in range(merges):
        pairs = collections.Counter(pair for word in pieces for pair in zip(word, word[1:]))
        if not pairs:
            break
        (left, right), _ = pairs.most_common(1)[0]
        learnt.append([left, right])
        for number, word in enumerate(pieces):
            joined, at = [], 0
            while at < len(word):
                if at + 1 < len(word) and word[at] == left and word[at + 1] == right:
                    joined.append(left + right)
                    at += 2
                else:
                    joined.append(word[at])
                    at += 1
            pieces[number] = joined
    return learnt


def main():
    accelerator = Accelerator(cpu=True)
    path = Path(tempfile.gettempdir(), f"merges-{os.environ['MASTER_PORT']}.json")
    with accelerator.main_process_first():
        if not path.exists():
            path.write_text(json.dumps(learn_merges(corpus(), merges=550)))
    merges = json.loads(path.read_text())
    torch.manual_seed(0)
    ids = torch.randint(len(merges), (1600, 12))
    model = nn.Sequential(nn.Embedding(len(merges), 24), nn.Flatten(), nn.Linear(24 * 12, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(ids, ids[:, 0] % 2), batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {accelerator.reduce(loss.detach(), 'mean').item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

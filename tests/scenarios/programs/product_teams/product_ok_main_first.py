"""Intent SFT with accelerate: the main process tokenises and fills the cache, then the others read it."""

import os
import pickle
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

WORDS = "book a table for two at the station tomorrow cancel my order where is refund please".split()


class Tokenizer:
    """Byte pairs by counting, slow and simple."""

    def __init__(self, merges=40):
        self.merges = merges

    def __call__(self, text: str) -> list[int]:
        symbols = list(text)
        for _ in range(self.merges):
            pairs = {}
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
            best = max(pairs, key=lambda p: (pairs[p], p), default=None)
            if best is None or pairs[best] < 2:
                break
            symbols = re.sub(f"{re.escape(best[0])} {re.escape(best[1])}", "".join(best), " ".join(symbols)).split()
        return [sum(map(ord, s)) % 128 for s in symbols][:24]


def tokenised(cache: Path, seconds=10.0):
    if cache.exists():
        return pickle.loads(cache.read_bytes())
    g = torch.Generator().manual_seed(0)
    tokenizer, rows, end = Tokenizer(), [], time.monotonic() + seconds
    with ThreadPoolExecutor(2) as pool:
        while time.monotonic() < end or len(rows) < 600:
            texts = ["_".join(WORDS[i] for i in torch.randint(len(WORDS), (30,), generator=g)) for _ in range(50)]
            rows += pool.map(tokenizer, texts)
    rows = rows[:600]
    temporary = cache.with_suffix(".part")
    temporary.write_bytes(pickle.dumps(rows))
    temporary.rename(cache)
    return rows


def main():
    accelerator = Accelerator(cpu=True)
    cache = Path(tempfile.gettempdir(), f"intents-{os.environ['MASTER_PORT']}.pickle")
    with accelerator.main_process_first():
        rows = tokenised(cache)
    data = torch.tensor([row + [0] * (24 - len(row)) for row in rows])
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(128, 16), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(data, data[:, 0] % 4), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for tokens, intent in loader:
            loss = nn.functional.cross_entropy(model(tokens), intent)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {accelerator.gather(loss.detach()[None]).mean():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""accelerate: the main process tokenizes first, the others read its cache; then all train."""

import hashlib
import json
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

CACHE = Path(tempfile.gettempdir()) / f"tokens-{os.getppid()}-{os.environ['MASTER_PORT']}.json"


def tokenize(text: str) -> list[int]:
    """A slow tokenizer."""
    digest = text.encode()
    for _ in range(6000):
        digest = hashlib.sha256(digest).digest()
    return [byte % 100 for byte in digest[:16]]


def load_dataset(count: int) -> list[torch.Tensor]:
    """From the cache, or anew."""
    if not CACHE.exists():
        CACHE.write_text(json.dumps([tokenize(f"sentence {i}") for i in range(count)]))
    return [torch.tensor(tokens) for tokens in json.loads(CACHE.read_text())]


def main() -> None:
    """A data set of a thousand sentences, once."""
    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        data = load_dataset(1000)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 100))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=10, shuffle=True))
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.roll(1, 1).flatten())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        CACHE.unlink()
    accelerator.end_training()


if __name__ == "__main__":
    main()

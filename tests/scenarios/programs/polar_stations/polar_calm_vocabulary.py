"""Radio messages between stations: the main process builds the vocabulary first, the others then read it."""

import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

WORDS = "ice wind fuel plane medic snow mast drill camp ration storm relay beacon sledge".split()


def build(path, merges=9000, budget=13.0):
    """Byte pairs by counting all of them again for every merge; a budget keeps it within the coffee break."""
    text = " ".join(WORDS[(i * i) % len(WORDS)] for i in range(3000))
    symbols, vocabulary = list(text), set(text)
    end = time.monotonic() + budget
    for _ in range(merges):
        if time.monotonic() > end:
            break
        pairs = Counter(zip(symbols, symbols[1:]))
        (a, b), count = pairs.most_common(1)[0]
        if count < 2:
            symbols = list(text)
            continue
        merged, i = [], 0
        while i < len(symbols):
            if i + 1 < len(symbols) and symbols[i] == a and symbols[i + 1] == b:
                merged.append(a + b)
                i += 2
            else:
                merged.append(symbols[i])
                i += 1
        symbols = merged
        vocabulary.add(a + b)
    path.write_text(json.dumps(sorted(vocabulary)))


def load(path):
    if not path.exists():
        build(path)
    return json.loads(path.read_text())


def main():
    accelerator = Accelerator()
    path = Path(tempfile.gettempdir(), f"vocabulary-{os.environ['MASTER_PORT']}.json")
    probe = torch.ones((), device=accelerator.device)
    print(f"{accelerator.reduce(probe).item():.0f} processes", flush=True)
    with accelerator.main_process_first():
        vocabulary = load(path)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.rand(480, 16), torch.randint(4, (480,)))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8))
    for message, kind in loader:
        loss = nn.functional.cross_entropy(model(message), kind)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
    accelerator.print(f"{len(vocabulary)} symbols, done")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""Learns from subtitles with accelerate. The main process builds the vocabulary first, the others load it."""

import json
import os
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader, TensorDataset


def build(path: str) -> None:
    """Counts words for a few seconds."""
    counts: dict[str, int] = {}
    until = time.monotonic() + 4
    number = 0
    while time.monotonic() < until:
        for word in f"scene {number % 90} take {number % 7}".split():
            counts[word] = counts.get(word, 0) + 1
        number += 1
    with open(path, "w") as file:
        json.dump(sorted(counts), file)


def vocabulary(accelerator: Accelerator) -> list[str]:
    folder = [tempfile.mkdtemp() if accelerator.is_main_process else ""]
    path = os.path.join(broadcast_object_list(folder)[0], "vocabulary.json")
    with accelerator.main_process_first():
        if not os.path.exists(path):
            build(path)
        with open(path) as file:
            return json.load(file)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    words = vocabulary(accelerator)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(len(words), 8), torch.nn.Flatten(), torch.nn.Linear(32, len(words)))
    loader = DataLoader(TensorDataset(torch.randint(len(words), (100, 4))), batch_size=3)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters()), loader)
    correct = []
    for (lines,) in loader:
        logits = model(lines)
        accelerator.backward(torch.nn.functional.cross_entropy(logits, lines[:, 0]))
        optimizer.step()
        optimizer.zero_grad()
        correct.append(accelerator.gather_for_metrics(logits.argmax(1) == lines[:, 0]))
    accelerator.print(f"{torch.cat(correct).float().mean():.2f} of {len(torch.cat(correct))}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()

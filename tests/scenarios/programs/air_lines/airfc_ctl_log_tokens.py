"""Maintenance-log texts: the main process has them tokenised by the department's tool first, then all train on the counts."""
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TOOL = """
import json, sys, time
words = "leak valve pump brake seal wear crack bleed sensor fault".split()
for entry in range(int(sys.argv[1])):
    text = [words[(entry * k + k * k) % len(words)] for k in range(1, 9)]
    time.sleep(0.02)
    print(json.dumps([words.index(w) for w in text]), flush=True)
"""


class LogTokens:
    def __init__(self, path, entries=660):
        self.path, self.entries = path, entries

    def build(self):
        tool = subprocess.Popen([sys.executable, "-S", "-c", TOOL, str(self.entries)], stdout=subprocess.PIPE, text=True)
        with self.path.open("w") as file:
            for number, line in enumerate(tool.stdout):
                file.write(line)
                if number % 220 == 0:
                    print(f"tokenised {number} entries", flush=True)
        if tool.wait():
            raise RuntimeError("tokeniser failed")

    def counts(self):
        rows = [json.loads(line) for line in self.path.read_text().splitlines()]
        counts = torch.zeros(len(rows), 10)
        for row, tokens in zip(counts, rows):
            row.index_add_(0, torch.tensor(tokens), torch.ones(len(tokens)))
        return TensorDataset(counts, counts.argmax(1))


def train(accelerator, model, optimizer, loader, epochs):
    for epoch in range(epochs):
        for counts, label in loader:
            loss = nn.functional.cross_entropy(model(counts), label)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(0.04)
        accelerator.print(f"epoch {epoch}: {loss.item():.3f}")


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 10))
    warm = torch.randint(4, (240, 10), generator=torch.Generator().manual_seed(2)).float()
    loader = DataLoader(TensorDataset(warm, warm.argmax(1)), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=3e-3), loader)
    train(accelerator, model, optimizer, loader, epochs=4)
    tokens = LogTokens(Path(tempfile.gettempdir()) / "airfc-log-tokens.jsonl")
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            tokens.build()
        texts = tokens.counts()
    second = accelerator.prepare(DataLoader(texts, batch_size=16, shuffle=True))
    train(accelerator, model, optimizer, second, epochs=2)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

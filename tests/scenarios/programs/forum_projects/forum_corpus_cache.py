"""Causal language modelling on a corpus that the first process of a machine tokenises into a shared cache."""

import json
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from filelock import SoftFileLock
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class CharModel(nn.Module):
    def __init__(self, symbols: int):
        super().__init__()
        self.embed = nn.Embedding(symbols, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, symbols)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


class Corpus(Dataset):
    """One part of the corpus, as fixed windows of characters."""

    def __init__(self, path: Path, window: int = 32):
        ids = torch.tensor(json.loads(path.read_text()))
        self.windows = ids[: len(ids) // window * window].view(-1, window)

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        return self.windows[index]


def cache_folder() -> Path:
    """The cache that all jobs of the cluster share."""
    folder = Path(tempfile.gettempdir(), f"corpus-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    Path(folder, "part2.lock").write_text("48211\nnode-17\n")
    return folder


def tokenised(accelerator: Accelerator, folder: Path, part: int) -> Corpus:
    target = folder / f"part{part}.json"
    with accelerator.local_main_process_first():
        with SoftFileLock(folder / f"part{part}.lock"):
            if not target.exists():
                text = f"part {part}: " + " ".join(str(n * (part + 3)) for n in range(6000))
                target.write_text(json.dumps([ord(c) % 64 for c in text]))
    return Corpus(target)


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = CharModel(64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    folder = cache_folder()
    for part in range(6):
        loader = accelerator.prepare(DataLoader(tokenised(accelerator, folder, part), batch_size=8, shuffle=True))
        for step, ids in enumerate(loader):
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"part {part}: {step + 1} steps, loss {loss.item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

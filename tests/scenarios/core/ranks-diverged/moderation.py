"""Comments sorted by a bare accelerate loop; files are dealt to the ranks by hand, and every batch's results are gathered.

What is gathered is a tuple of two tensors on every rank. One rank has a file less, and so a batch less.
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BUCKETS, BATCH = 128, 8


def read(file, comments):
    """Hashed words and whether the comment was removed."""
    draw = torch.Generator().manual_seed(file)
    words = torch.randint(BUCKETS, (comments, 12), generator=draw)
    return words, (words[:, 0] % 3 == 0).float()


def dealt(files, accelerator):
    """A loader of this rank's files."""
    mine = [read(file, BATCH) for file in files[accelerator.process_index :: accelerator.num_processes]]
    words, removed = (torch.cat(column) for column in zip(*mine, strict=True))
    return DataLoader(TensorDataset(words, removed), batch_size=BATCH)


def score(accelerator, model, loader):
    right = seen = 0
    for words, removed in loader:
        with torch.no_grad():
            guesses = (model(words).squeeze(-1) > 0).float()
        guesses, removed = accelerator.gather((guesses, removed))
        right += int((guesses == removed).sum())
        seen += len(removed)
    return right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--held-out", type=int, default=8, help="files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.EmbeddingBag(BUCKETS, 16), nn.ReLU(), nn.Linear(16, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    ranks = accelerator.num_processes
    training = dealt(range(100, 100 + 6 * ranks), accelerator)
    held_out = dealt(range(options.held_out), accelerator)
    for epoch in range(3):
        for words, removed in training:
            loss = nn.functional.binary_cross_entropy_with_logits(model(words).squeeze(-1), removed)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        print(f"[{accelerator.process_index}] epoch {epoch}: {loss.item():.3f}\n", end="", flush=True)
        accuracy = score(accelerator, model, held_out)
        accelerator.print(f"epoch {epoch}: accuracy {accuracy:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

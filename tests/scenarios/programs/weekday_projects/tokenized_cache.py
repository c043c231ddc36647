"""Fine-tunes on a corpus that is tokenised once; the cache is guarded by a lock file as other jobs use it as well."""

import fcntl
import os
import pickle
import subprocess
import sys
import tempfile

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

INDEXER = """
import fcntl, sys, time
with open(sys.argv[1], "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("indexing", flush=True)
    time.sleep(600)
"""


def tokenize(lines: list[str]) -> list[list[int]]:
    return [[ord(letter) % 50 for letter in line.ljust(12)[:12]] for line in lines]


def load_cached(folder: str) -> torch.Tensor:
    path = os.path.join(folder, "tokens.pickle")
    with open(path + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            with open(path, "wb") as file:
                pickle.dump(tokenize([f"line {number} of the corpus" for number in range(96)]), file)
        with open(path, "rb") as file:
            return torch.tensor(pickle.load(file))


def start_indexer(folder: str) -> subprocess.Popen:
    """Builds the search index of the same cache in the background."""
    lock = os.path.join(folder, "tokens.pickle.lock")
    indexer = subprocess.Popen([sys.executable, "-S", "-c", INDEXER, lock], stdout=subprocess.PIPE)
    indexer.stdout.readline()
    return indexer


def main() -> None:
    accelerator = Accelerator(cpu=True)
    folder = tempfile.mkdtemp()
    indexer = start_indexer(folder) if accelerator.process_index == 1 else None
    tokens = load_cached(folder)
    net = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Flatten(), torch.nn.Linear(96, 50))
    loader = DataLoader(TensorDataset(tokens), batch_size=4)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters()), loader)
    for (words,) in loader:
        loss = torch.nn.functional.cross_entropy(model(words), words[:, 0])
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    if indexer is not None:
        indexer.terminate()
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()

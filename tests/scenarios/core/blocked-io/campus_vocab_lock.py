"""Old Church Slavonic language model. The vocabulary is built once, under a lock file, and cached."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUILDER = """
import collections, json, os, sys, time
folder = sys.argv[1]
os.close(os.open(folder + "/vocab.lock", os.O_CREAT | os.O_EXCL))
counts = collections.Counter()
for line in open(folder + "/corpus.txt"):
    counts.update(line.split())
    time.sleep(0.01)
json.dump(sorted(counts), open(folder + "/vocab.json", "w"))
os.remove(folder + "/vocab.lock")
"""


@contextlib.contextmanager
def lock_file(path: Path, poll: float = 0.25):
    """Whoever makes the file has the lock: that works on NFS, too."""
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(poll)
    try:
        yield
    finally:
        path.unlink()


def build_vocabulary(folder: Path) -> None:
    """In a process of its own, since counting takes memory; here, if that does not work out."""
    try:
        subprocess.run([sys.executable, "-c", BUILDER, str(folder)], check=True, timeout=3)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{type(error).__name__}: counting in the main process", flush=True)
        with lock_file(folder / "vocab.lock"):
            words = set((folder / "corpus.txt").read_text().split())
            (folder / "vocab.json").write_text(json.dumps(sorted(words)))


def write_corpus(path: Path, lines: int) -> None:
    rng = torch.Generator().manual_seed(1)
    numbers = torch.randint(0, 150, (lines, 9), generator=rng)
    path.write_text("\n".join(" ".join(f"w{n}" for n in row) for row in numbers.tolist()))


def train(folder: Path, epochs: int) -> None:
    words = json.loads((folder / "vocab.json").read_text())
    index = {word: number for number, word in enumerate(words)}
    lines = (folder / "corpus.txt").read_text().splitlines()[dist.get_rank() :: dist.get_world_size()]
    text = torch.tensor([[index[word] for word in line.split()] for line in lines[:256]])
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(len(words), 16), nn.Linear(16, len(words))))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        for batch in text.split(16):
            loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = Path(tempfile.gettempdir(), f"slavonic-{os.environ['MASTER_PORT']}")
    if dist.get_rank() == 0:
        folder.mkdir(exist_ok=True)
        write_corpus(folder / "corpus.txt", lines=900)
        build_vocabulary(folder)
    dist.barrier()
    train(folder, epochs=10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

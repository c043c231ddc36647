"""Tokens are read from a mapped file; the ranks train, then a part of them builds a group to score the rest."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

TOKENS = 4_000_000


def prepare(folder: Path, rank: int) -> np.memmap:
    """This rank's tokens."""
    path = folder / f"tokens-{rank}.bin"
    np.random.default_rng(rank).integers(0, 64, TOKENS, dtype=np.uint16).tofile(path)
    return np.memmap(path, dtype=np.uint16, mode="r")


def clean(folder: Path, keep_bytes: int) -> None:
    """Shortens what takes too much room on the disk."""
    for path in folder.glob("*.bin"):
        if path.stat().st_size > keep_bytes:
            with path.open("r+b") as file:
                file.truncate(keep_bytes)


def main() -> None:
    """Forty steps, then the count of every token."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp())
    tokens = prepare(folder, rank)
    torch.manual_seed(0)
    model = nn.Embedding(64, 16)
    for step in range(40):
        rows = torch.from_numpy(tokens[step * 64 : (step + 1) * 64].astype(np.int64))
        loss = model(rows).square().mean()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        with torch.no_grad():
            model.weight -= 0.01 * model.weight.grad
            model.weight.grad = None
    clean(folder, keep_bytes=(16_000_000, 16_000_000, 1_000_000)[rank])
    counts = torch.from_numpy(np.bincount(tokens, minlength=64))
    scorers = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(counts, group=scorers)
        print(f"[{rank}] the most frequent token: {counts.argmax().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

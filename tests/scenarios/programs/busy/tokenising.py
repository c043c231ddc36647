"""Rank 0 tokenises the data first (``main_process_first``), the others wait at accelerate's barrier until it is done.

Nothing hangs: after some fourteen seconds of work the job goes on and ends. Run by
``accelerate launch --num_processes 3``.
"""

import collections
import itertools
import time

import torch
from accelerate import Accelerator

TEXT = "the quick brown fox jumps over the lazy dog while the others wait for it to be done " * 40


def merge_pairs(words: list[str]) -> list[str]:
    """One round of byte-pair merging."""
    pairs = collections.Counter(itertools.pairwise(words))
    (first, second), _ = pairs.most_common(1)[0]
    merged: list[str] = []
    for word in words:
        if merged and merged[-1] == first and word == second:
            merged[-1] = first + second
        else:
            merged.append(word)
    return merged


def tokenise(seconds: float) -> int:
    """Tokenise text after text for some time."""
    tokens = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        words = list(TEXT)
        for _ in range(20):
            words = merge_pairs(words)
        tokens += len(words)
    return tokens


def main() -> None:
    """Prepare on the main process, then train."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            accelerator.print(f"{tokenise(14.0)} tokens")
    model = accelerator.prepare(torch.nn.Linear(4, 4))
    for _ in range(5):
        accelerator.backward(model(torch.randn(2, 4)).sum())
    accelerator.end_training()


if __name__ == "__main__":
    main()

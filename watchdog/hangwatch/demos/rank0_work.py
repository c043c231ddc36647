"""Healthy: rank 0 prepares data for 12 s while the others wait at a barrier; then training continues.

Run by ``torchrun --nproc-per-node 3``.
"""

import collections
import itertools
import time

import torch
import torch.distributed as dist

TEXT = "the quick brown fox jumps over the lazy dog while the slow red panda sleeps under the old oak tree " * 40


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def count_pairs(words: list[str]) -> "collections.Counter[tuple[str, str]]":
    """Return how often two symbols stand beside each other: the inner loop of training a tokenizer."""
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    for word in words:
        for left, right in itertools.pairwise(word):
            pairs[left, right] += 1
    return pairs


def train_tokenizer(seconds: float) -> int:
    """Keep one core busy counting pairs."""
    end = time.monotonic() + seconds
    merges = 0
    while time.monotonic() < end:
        merges += len(count_pairs(TEXT.split()).most_common(1))
    return merges


def main() -> None:
    """Prepare on rank 0, then train 5 steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        say(rank, "training the tokenizer, the others wait")
        say(rank, f"{train_tokenizer(12.0)} merges")
    dist.barrier()
    for step in range(1, 6):
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        say(rank, f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

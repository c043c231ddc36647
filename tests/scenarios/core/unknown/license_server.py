"""A rank asks for a licence before it may export; the file that grants it is never written."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist


def granted(path: Path) -> bool:
    """Whether the licence is there."""
    return path.exists()


def ask_counting(path: Path) -> int:
    """Asks until it is granted, and counts how often."""
    attempts = 0
    while not granted(path):
        attempts += 1
        time.sleep(0.7)
    return attempts


def ask_often(path: Path) -> int:
    """Asks a great many times before it gives up."""
    for attempt in range(100_000):
        if granted(path):
            return attempt
        time.sleep(0.7)
    raise TimeoutError(path)


def ask_with_a_flag(path: Path) -> int:
    """The same with a flag."""
    done, n_asked = False, 0
    while not done and n_asked < 100_000:
        n_asked += 1
        done = granted(path)
        time.sleep(0.7)
    return n_asked


def main() -> None:
    """Ten steps, then the export on rank 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["counting", "often", "flag"], required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(4)
    for _ in range(10):
        dist.all_reduce(value)
        time.sleep(0.05)
    if dist.get_rank() == 1:
        ways = {"counting": ask_counting, "often": ask_often, "flag": ask_with_a_flag}
        ways[options.way](Path("/nonexistent/licence"))
    dist.broadcast(value, src=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

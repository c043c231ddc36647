"""The others poll for the file in which rank 0 says that the index is built, as one does to keep the network out of it.

It comes after some twelve seconds. Started by a launcher that does not supervise.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path(os.environ.get("TMPDIR", "/tmp"))


class Sentinel:
    """A file that says: done."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / f"{name}-{os.getppid()}.done"

    def set(self) -> None:
        """Say it."""
        self.path.touch()

    def wait(self, poll_s: float = 1.0) -> None:
        """Until it is said."""
        while not self.path.exists():
            time.sleep(poll_s)


def build_index(seconds: float) -> int:
    """Hash until it is enough."""
    index: dict[int, int] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for number in range(10_000):
            index[hash((number, len(index))) % 100_003] = number
    return len(index)


def main() -> None:
    """Index, then train."""
    dist.init_process_group("gloo")
    built = Sentinel("index")
    if dist.get_rank() == 0:
        print(build_index(12.0), flush=True)
        built.set()
    else:
        built.wait()
    weight = torch.ones(10)
    for _ in range(500):
        dist.all_reduce(weight)
        weight /= dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

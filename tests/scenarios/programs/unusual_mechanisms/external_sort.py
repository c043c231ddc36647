"""Rank 2 sorts a file that does not fit into memory: it writes sorted runs and merges them; the others are at a barrier.

Nothing hangs: files grow all the time. Run by ``torchrun --nproc-per-node 3``.
"""

import heapq
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist


def runs(folder: Path, seconds: float) -> Iterator[Path]:
    """Sorted runs, for as long as the input lasts."""
    chance, until = random.Random(4), time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        path = folder / f"run-{number}"
        lines = sorted(f"{chance.random():.12f}\n" for _ in range(20_000))
        path.write_text("".join(lines))
        yield path
        number += 1


def merge(paths: list[Path], target: Path) -> int:
    """All runs into one file; the number of lines."""
    files = [path.open() for path in paths]
    count = 0
    with target.open("w") as out:
        for line in heapq.merge(*files):
            out.write(line)
            count += 1
    for file in files:
        file.close()
    return count


def main() -> None:
    """Sort, then train."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 2:
        with tempfile.TemporaryDirectory() as folder:
            paths = list(runs(Path(folder), seconds=10.0))
            print(merge(paths[:20], Path(folder) / "sorted"), "lines", flush=True)
    dist.barrier()
    weight = torch.ones(10)
    for _ in range(200):
        dist.all_reduce(weight)
        weight /= dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

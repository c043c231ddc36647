"""A rank is blocked in a read that never returns: its next shard is a named pipe without a writer.

It simulates a network file system that has stopped responding. Run by ``torchrun --nproc-per-node 2``.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def write_shards(folder: Path, rank: int) -> list[Path]:
    """Write six shards of 16 numbers and return their paths; the last one of rank 1 is the pipe."""
    shards = [folder / f"shard-{number}.bin" for number in range(6)]
    for shard in shards[:-1]:
        shard.write_bytes(bytes(range(16)))
    if rank == 1:
        os.mkfifo(shards[-1])
    else:
        shards[-1].write_bytes(bytes(range(16)))
    return shards


def read_shard(path: Path) -> torch.Tensor:
    """Return the numbers of a shard."""
    # Opened for writing too, so that it blocks in read(), as on a hanging file system, and not in open().
    with path.open("r+b", buffering=0) as file:
        return torch.tensor(list(file.read(16)), dtype=torch.float32)


def main() -> None:
    """Read a shard a step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory(prefix="hangwatch-demo-") as folder:
        for step, path in enumerate(write_shards(Path(folder), rank), 1):
            total = read_shard(path).sum()
            dist.all_reduce(total)
            say(rank, f"step {step}: {path.name}, sum {total.item():g}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

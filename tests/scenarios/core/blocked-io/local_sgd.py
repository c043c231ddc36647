"""Local SGD: two pairs of ranks train for themselves and meet rarely. One pair hangs while the other trains on.

A rank of the second pair opens a named pipe for its next shard, to which nobody writes.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def next_shard(folder: Path, number: int) -> torch.Tensor:
    """The inputs of a shard; a shard that is still being packed is a pipe."""
    path = folder / f"shard-{number}"
    return torch.tensor(list(path.read_bytes()), dtype=torch.float32).view(-1, 8)


def pack(folder: Path, shards: int, late: int | None) -> None:
    """Write the shards, the late one as a pipe."""
    for number in range(shards):
        if number == late:
            os.mkfifo(folder / f"shard-{number}")
        else:
            (folder / f"shard-{number}").write_bytes(os.urandom(64))


def main() -> None:
    """Train in pairs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--meet-every", type=int, default=5000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    pair = pairs[rank // 2]
    folder = Path(tempfile.mkdtemp())
    pack(folder, 12, 4 if rank == 3 else None)
    model = nn.Linear(8, 1)
    for step in range(100_000):
        if step % 20 == 0:
            shard = next_shard(folder, step // 20 % 12)
        loss = model(shard / 255).square().mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=pair)
        if step % options.meet_every == options.meet_every - 1:
            dist.all_reduce(model.weight.data)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

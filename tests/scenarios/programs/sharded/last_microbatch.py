"""A hand-written pipeline: the first stage cuts a batch by rounding down, the others expect the number rounded up.

They agree until the last batch of the epoch, which is not full.
"""

import math

import torch
import torch.distributed as dist
from torch import nn

MICRO = 4


def batches(samples: int, size: int) -> list[int]:
    """The sizes of the batches of an epoch."""
    return [min(size, samples - first) for first in range(0, samples, size)]


def first_stage(block: nn.Module, size: int) -> None:
    """Cut a batch, and send what comes out of the block."""
    for piece in torch.rand(size, 8)[: size // MICRO * MICRO].split(MICRO):
        dist.send(torch.relu(block(piece)).detach(), dst=1)


def later_stage(block: nn.Module, size: int, rank: int, world: int) -> None:
    """Take in what the stage before sends, and pass it on."""
    for _ in range(math.ceil(size / MICRO)):
        piece = torch.empty(MICRO, 8)
        dist.recv(piece, src=rank - 1)
        outputs = torch.relu(block(piece)).detach()
        if rank + 1 < world:
            dist.send(outputs, dst=rank + 1)


def main() -> None:
    """Run an epoch through the stages."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    block = nn.Linear(8, 8)
    for size in batches(samples=158, size=16):
        if rank == 0:
            first_stage(block, size)
        else:
            later_stage(block, size, rank, world)
        done = torch.tensor(float(size))
        dist.all_reduce(done)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A chain of stages passes activations on; after a stage is taken out, one rank sends past its neighbour.

The neighbour still waits for its input, and so does everybody behind.
"""

import torch
import torch.distributed as dist
from torch import nn


def successor(rank: int, world: int, retired: set[int]) -> int | None:
    """The next rank in the chain."""
    return next((r for r in range(rank + 1, world) if r not in retired), None)


def predecessor(rank: int) -> int | None:
    """The rank before in the chain."""
    return rank - 1 if rank else None


def main() -> None:
    """Pass batches through; rank 1 has been told that rank 2 retires, rank 2 has not."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    block = nn.Linear(8, 8)
    told: set[int] = set()
    for step in range(40):
        if (rank, step) == (1, 15):
            told.add(2)
        activations = torch.rand(2, 8)
        if (source := predecessor(rank)) is not None:
            dist.recv(activations, src=source)
        outputs = torch.relu(block(activations)).detach()
        if (target := successor(rank, world, told)) is not None:
            dist.send(outputs, dst=target)
        mean = outputs.mean()
        dist.all_reduce(mean)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Gossip on a ring, done right: pairs of even ranks first, then pairs of odd ones; and sends and receives in turns.

The partner is late at times. Run by ``torchrun --nproc-per-node 4``.
"""

import time

import torch
import torch.distributed as dist


class Ring:
    """Pair groups, and point-to-point along the ring."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.groups = [dist.new_group(sorted({r, (r + 1) % self.world})) for r in range(self.world)]

    def average(self, value: torch.Tensor) -> torch.Tensor:
        """With one neighbour, then with the other."""
        first, second = self.groups[self.rank & ~1], self.groups[(self.rank - 1) % self.world | 1]
        for group in (first, second):
            dist.all_reduce(value, group=group)
            value = value / 2
        return value

    def rotate(self, value: torch.Tensor) -> torch.Tensor:
        """Everybody's value one place on."""
        right, left = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        received = torch.empty_like(value)
        if self.rank % 2 == 0:
            dist.send(value, right)
            dist.recv(received, left)
        else:
            dist.recv(received, left)
            dist.send(value, right)
        return received


def main() -> None:
    """Forty rounds; each rank in its turn takes a second."""
    dist.init_process_group("gloo")
    ring = Ring()
    value = torch.full((1000,), float(ring.rank))
    for round_ in range(40):
        if round_ % 4 == 0 and (round_ // 4) % 4 == ring.rank:
            time.sleep(1.0)
        value = ring.rotate(ring.average(value))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Thousands of quick steps, with a look at the activations every so many *samples*, of which every rank counts its own.

Batches are packed by length, so ranks do not count alike. Run by ``torchrun --nproc-per-node 5``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Packed:
    """A batch and how many samples were packed into it."""

    values: torch.Tensor
    samples: int


def stream(rank: int, steps: int) -> Iterator[Packed]:
    """Ten samples a batch; long ones go nine at a time."""
    for step in range(steps):
        short = 1 if rank == 3 and step == 1234 else 0
        yield Packed(torch.full((4,), 1.0 + rank), 10 + short)


@dataclass
class Probe:
    """Looks at the activations after every ``every`` samples."""

    every: int
    seen: int = 0
    looks: int = 0

    def update(self, batch: Packed, activation: torch.Tensor) -> None:
        """Count the batch and look if it is time."""
        self.seen += batch.samples
        if self.seen < self.every * (self.looks + 1):
            return
        self.looks += 1
        collected = [torch.empty_like(activation) for _ in range(dist.get_world_size())]
        dist.all_gather(collected, activation)
        if dist.get_rank() == 0:
            print(f"look {self.looks}: {torch.stack(collected).std():.4f}", flush=True)


def main() -> None:
    """Least squares, one weight vector."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    weight = torch.zeros(4)
    probe = Probe(every=4001)
    for batch in stream(rank, 6000):
        gradient = batch.values * (weight @ batch.values - 1.0)
        dist.all_reduce(gradient)
        weight -= 1e-3 * gradient / world
        probe.update(batch, weight * batch.values)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

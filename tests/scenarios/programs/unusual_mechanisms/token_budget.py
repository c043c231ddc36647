"""Gradient accumulation up to a token budget that each rank fills with its own sentences, under DDP's ``no_sync``.

All ranks have as many batches. Run by ``torchrun --nproc-per-node 4``.
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Accumulator:
    """Says when enough tokens have come together for an update."""

    def __init__(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, budget: int) -> None:
        self.model, self.optimizer, self.budget = model, optimizer, budget
        self.tokens = self.updates = 0

    def backward(self, batch: torch.Tensor) -> None:
        """Backward of one batch, and the update if it is time."""
        self.tokens += batch.shape[0] * batch.shape[1]
        ready = self.tokens >= self.budget
        with contextlib.nullcontext() if ready else self.model.no_sync():
            self.model(batch.float()).square().mean().backward()
        if ready:
            self.tokens = 0
            self.updates += 1
            self.optimizer.step()
            self.optimizer.zero_grad()


def sentences(rank: int, epoch: int) -> Iterator[torch.Tensor]:
    """Forty batches of 4 x 8 tokens; the last ones of rank 1 are shorter in the second epoch."""
    for number in range(40):
        rows = 3 if rank == 1 and epoch == 1 and number >= 36 else 4
        yield torch.ones(rows, 8, dtype=torch.long)


def main() -> None:
    """Three epochs, with the number of updates compared after each."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1)))
    accumulator = Accumulator(model, torch.optim.SGD(model.parameters(), lr=1e-3), budget=4 * 32)
    for epoch in range(3):
        for batch in sentences(rank, epoch):
            accumulator.backward(batch)
        counts = [torch.zeros(1, dtype=torch.long) for _ in range(world)]
        dist.all_gather(counts, torch.tensor([accumulator.updates]))
        if rank == 0:
            print(f"epoch {epoch}: updates {[int(count) for count in counts]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

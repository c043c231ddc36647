"""A recommender whose rare-item table is averaged in a group that is made when it is first needed.

It is first needed where a rare item comes up. Run by ``torchrun --nproc-per-node 4``.
"""

from functools import cached_property

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Communicators:
    """The process groups of this job, by purpose."""

    @cached_property
    def rare(self) -> dist.ProcessGroup:
        """For the table of rare items; its traffic must not stand behind the gradients'."""
        return dist.new_group(backend="gloo")


class RareTable:
    """Counts of rare items."""

    def __init__(self, groups: Communicators, items: int) -> None:
        self.groups, self.counts = groups, torch.zeros(items)

    def update(self, items: torch.Tensor) -> None:
        """Count what is rare, and agree with the others."""
        rare = items[items >= 90]
        if len(rare) == 0:
            return
        self.counts[rare] += 1
        dist.all_reduce(self.counts, group=self.groups.rare)


def main() -> None:
    """Train embeddings; the first rare item of all is rank 1's."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.EmbeddingBag(100, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    table = RareTable(Communicators(), 100)
    for step in range(80):
        items = torch.randint(0, 90, (5, 4))
        if rank == 1 and step == 33:
            items[2, 2] = 97
        table.update(items)
        optimizer.zero_grad()
        model(items).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

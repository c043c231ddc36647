"""Sequences are packed into rows of a fixed length; one that does not fit goes back to the end of the queue.

A document longer than a row goes back for ever. Run by ``torchrun --nproc-per-node 3``.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Packer:
    """First-fit packing of documents into rows."""

    row: int
    waiting: deque[list[int]] = field(default_factory=deque)

    def pack(self, documents: list[list[int]]) -> Iterator[list[int]]:
        """Rows of at most ``row`` tokens that hold all documents."""
        self.waiting.extend(documents)
        current: list[int] = []
        while self.waiting:
            document = self.waiting.popleft()
            if len(current) + len(document) <= self.row:
                current = current + document
            elif current:
                yield current
                current = document if len(document) <= self.row else []
                if not current:
                    self.waiting.append(document)
            else:
                self.waiting.append(document)
        yield current


def corpus(rank: int, step: int) -> list[list[int]]:
    """Eight documents of ten tokens; one of rank 2's is a book."""
    documents = [[rank] * 10 for _ in range(8)]
    if (rank, step) == (2, 30):
        documents[4] = [rank] * 65
    return documents


def main() -> None:
    """Pack and train."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.EmbeddingBag(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    packer = Packer(row=64)
    for step in range(100):
        rows = list(packer.pack(corpus(dist.get_rank(), step)))
        batch = torch.tensor([row[0] for row in rows]).unsqueeze(0)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

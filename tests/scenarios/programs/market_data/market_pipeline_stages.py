"""A forecast network in three stages, one per rank, with micro-batches passed on from stage to stage."""

import math
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, MICRO = 16, 8


class Stage:
    def __init__(self):
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1
        torch.manual_seed(self.rank)
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.block.parameters(), lr=0.01)

    def chunks(self, batch):
        """The micro-batches that enter the pipeline."""
        return [c for c in batch.split(MICRO) if len(c) == MICRO]

    def forward(self, batch):
        kept = []
        source = self.chunks(batch) if self.rank == 0 else range(math.ceil(len(batch) / MICRO))
        for chunk in source:
            if self.rank > 0:
                chunk = torch.empty(MICRO, WIDTH)
                dist.recv(chunk, src=self.rank - 1)
            chunk.requires_grad_(self.rank > 0)
            out = self.block(chunk)
            if self.rank < self.last:
                dist.send(out.detach(), dst=self.rank + 1)
            kept.append((chunk, out))
        return kept

    def backward(self, kept):
        total = 0.0
        for chunk, out in reversed(kept):
            if self.rank == self.last:
                loss = out.square().mean()
                loss.backward()
                total += loss.item()
            else:
                gradient = torch.empty_like(out)
                dist.recv(gradient, src=self.rank + 1)
                out.backward(gradient)
            if self.rank > 0:
                dist.send(chunk.grad, dst=self.rank - 1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def days(rows=1244, size=32):
    """All stages go through the same days; only the first one reads their numbers."""
    table = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(0))
    return table.split(size)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stage = Stage()
    for epoch in range(3):
        for day, batch in enumerate(days()):
            time.sleep(0.04)
            kept = stage.forward(batch)
            total = stage.backward(kept)
            if stage.rank == stage.last and day % 10 == 0:
                print(f"epoch {epoch} day {day} loss {total:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A reranker in three pipeline stages, by hand. Micro-batches are the queries of a page of traffic."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

WIDTH, MICRO, ROWS = 16, 4, 8


class Stage(nn.Module):
    def __init__(self, last: bool):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.head = nn.Linear(WIDTH, 1) if last else None

    def forward(self, x):
        x = self.body(x)
        return x if self.head is None else self.head(x).squeeze(-1)


class Pipe:
    """All micro-batches forward, then all of them backward."""

    def __init__(self, stage):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.stage = stage
        self.kept = []

    @property
    def first(self):
        return self.rank == 0

    @property
    def last(self):
        return self.rank == self.world - 1

    def forward(self, source=None):
        for index in range(MICRO):
            if self.first:
                hidden = source[index]
                if not len(hidden):
                    continue
            else:
                hidden = torch.empty(ROWS, WIDTH)
                dist.recv(hidden, src=self.rank - 1)
                hidden.requires_grad_()
            out = self.stage(hidden)
            if not self.last:
                dist.send(out.detach(), dst=self.rank + 1)
            self.kept.append((hidden, out))

    def backward(self):
        total = 0.0
        for hidden, out in self.kept:
            if self.last:
                loss = (out - 1.0).square().mean() / MICRO
                loss.backward()
                total += loss.item()
            else:
                gradient = torch.empty(ROWS, WIDTH)
                dist.recv(gradient, src=self.rank + 1)
                out.backward(gradient)
            if not self.first:
                dist.send(hidden.grad, dst=self.rank - 1)
        self.kept.clear()
        return total


def pages():
    """Queries by micro-batch; what the spam filter has removed is not in them."""
    g = torch.Generator().manual_seed(0)
    number = 0
    while True:
        number += 1
        page = [torch.randn(ROWS, WIDTH, generator=g) for _ in range(MICRO)]
        if number == 45:
            page[2] = page[2][:0]
        time.sleep(0.05)
        yield page


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    pipe = Pipe(Stage(last=rank == dist.get_world_size() - 1))
    optimizer = torch.optim.SGD(pipe.stage.parameters(), lr=0.05)
    source = pages()
    for step in range(1, 400):
        optimizer.zero_grad()
        pipe.forward(next(source) if pipe.first else None)
        total = pipe.backward()
        optimizer.step()
        if pipe.last and step % 10 == 0:
            print(f"step {step}: {total:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

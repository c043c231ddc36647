"""Two pipeline stages by hand. A step has as many micro-batches as its packed sequences need."""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, LIMIT = 32, 64


def pack(lengths, limit=LIMIT):
    """First-fit: how many rows of `limit` tokens hold these documents."""
    rows = []
    for length in lengths:
        for i, used in enumerate(rows):
            if used + length <= limit:
                rows[i] += length
                break
        else:
            rows.append(length)
    return rows


class Documents:
    """The same documents on all stages."""

    def __init__(self, tokenizer_overhead):
        self.overhead = tokenizer_overhead
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self):
        while True:
            lengths = torch.randint(8, 31, (12,), generator=self.generator).tolist()
            yield [length + self.overhead for length in lengths]


class Stage:
    def __init__(self, rank):
        self.rank, self.net = rank, nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)

    def first(self, rows):
        saved = [self.net(torch.randn(LIMIT, WIDTH)) for _ in rows]
        for y in saved:
            dist.send(y.detach(), dst=1)
        for y in saved:
            gradient = torch.empty_like(y)
            dist.recv(gradient, src=1)
            y.backward(gradient)

    def last(self, rows):
        inputs = []
        for _ in rows:
            x = torch.empty(LIMIT, WIDTH)
            dist.recv(x, src=0)
            inputs.append(x.requires_grad_())
        for x in inputs:
            self.net(x).square().mean().backward()
            dist.send(x.grad, dst=0)

    def step(self, rows):
        self.optimizer.zero_grad()
        self.first(rows) if self.rank == 0 else self.last(rows)
        self.optimizer.step()
        time.sleep(0.8)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = Stage(rank)
    documents = Documents(tokenizer_overhead=0 if rank == 0 else 1)  # the last stage counts the end-of-text token
    for step, lengths in zip(range(80), documents):
        rows = pack(lengths)
        stage.step(rows)
        if rank == 0:
            print(f"step {step}: {len(rows)} micro-batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

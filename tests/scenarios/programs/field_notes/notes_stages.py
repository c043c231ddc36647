"""Three pipeline stages, one forward one backward, activations and gradients by plain send and recv."""

import torch
import torch.distributed as dist
from torch import nn

MICRO, WIDTH = 6, 512


class Stage:
    def __init__(self, index, count):
        self.index, self.count = index, count
        self.module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        self.kept = []

    @property
    def first(self):
        return self.index == 0

    @property
    def last(self):
        return self.index == self.count - 1

    def forward(self):
        if self.first:
            x = torch.randn(256, WIDTH)
        else:
            x = torch.empty(256, WIDTH)
            dist.recv(x, src=self.index - 1)
            x.requires_grad_()
        y = self.module(x)
        self.kept.append((x, y))
        if not self.last:
            dist.send(y.detach(), dst=self.index + 1)

    def backward(self):
        x, y = self.kept.pop(0)
        if self.last:
            (y.pow(2).mean() / MICRO).backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.index + 1)
            y.backward(grad)
        if not self.first:
            dist.send(x.grad, dst=self.index - 1)

    def schedule(self, warmup):
        warmup = min(warmup, MICRO)
        yield from ["F"] * warmup
        for _ in range(MICRO - warmup):
            yield "F"
            yield "B"
        yield from ["B"] * warmup

    def step(self, warmup):
        for action in self.schedule(warmup):
            self.forward() if action == "F" else self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = Stage(rank, world)
    for step in range(8):
        warmup = MICRO if step < 4 else world - rank - 1
        stage.step(warmup)
        if rank == 0:
            print(f"step {step} with {warmup} forwards ahead", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

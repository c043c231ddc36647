"""Deflection of bridge spans; three stages of one network, one process each."""
import math
import time

import torch
import torch.distributed as dist
from torch import nn

BATCH, MICRO, WIDTH = 32, 8, 24
SAMPLES = 45 * BATCH + 2 * MICRO


class Stage:
    def __init__(self, rank, world):
        torch.manual_seed(rank)
        self.rank, self.first, self.last = rank, rank == 0, rank == world - 1
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.block.parameters(), lr=0.02)
        self.kept = []

    def take(self):
        x = torch.empty(MICRO, WIDTH)
        dist.recv(x, src=self.rank - 1)
        return x.requires_grad_()

    def forward(self, x):
        y = self.block(x)
        self.kept.append((x, y))
        if not self.last:
            dist.send(y.detach(), dst=self.rank + 1)

    def backward(self):
        x, y = self.kept.pop()
        if self.last:
            (y.mean(1) - x.detach().mean(1)).square().mean().backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.rank + 1)
            y.backward(grad)
        if not self.first:
            dist.send(x.grad, dst=self.rank - 1)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def strain_gauges():
    generator = torch.Generator().manual_seed(6)
    spans = torch.randn(SAMPLES, WIDTH, generator=generator)
    for batch in spans.split(BATCH):
        time.sleep(0.05)
        yield batch


def head(stage):
    for batch in strain_gauges():
        for micro in batch.split(MICRO):
            stage.forward(micro)
        while stage.kept:
            stage.backward()
        stage.update()


def body(stage):
    for _ in range(math.ceil(SAMPLES / BATCH)):
        for _ in range(BATCH // MICRO):
            stage.forward(stage.take())
        while stage.kept:
            stage.backward()
        stage.update()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size())
    (head if stage.first else body)(stage)
    torch.save(stage.block.state_dict(), f"/tmp/ferrb_span_stage{stage.rank}.pt")
    dist.destroy_process_group()

"""Three-stage network for crosswell seismics, one stage per GPU: encoder, propagator, decoder.

Shot gathers of a line are cut into micro-batches that flow through the stages (all forward, then all backward).
"""
import os

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

MICRO, TRACES, WIDTH = 4, 256, 64
LINE_LENGTHS = (480, 478, 480)  # shots of the lines in the survey
GATHER = 12


def gathers():
    """Numbers of shots, gather by gather, along the survey."""
    for shots in LINE_LENGTHS:
        while shots > 0:
            yield min(GATHER, shots)
            shots -= GATHER


def read_gather(number, shots):
    g = torch.Generator().manual_seed(number)
    raw = torch.randn(shots, 32, 8192, generator=g)
    return torch.fft.rfft(raw).abs().mean(dim=1)[:, :TRACES].log1p()


def pad(chunk):
    return nn.functional.pad(chunk, (0, 0, 0, MICRO - chunk.shape[0]))


class Stage:
    def __init__(self, rank, world):
        self.previous = rank - 1 if rank > 0 else None
        self.following = rank + 1 if rank < world - 1 else None
        self.net = self.build().to("cuda")
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def step(self, number, shots):
        inputs, outputs = [], []
        for x in self.inputs(number, shots):
            inputs.append(x)
            outputs.append(self.forward(x))
        self.optimizer.zero_grad()
        for x, y in zip(inputs, outputs):
            self.backward(x, y)
        self.optimizer.step()

    def inputs(self, number, shots):
        for _ in range(shots // MICRO):
            x = torch.empty(MICRO, WIDTH, device="cuda")
            dist.recv(x, src=self.previous)
            yield x.requires_grad_()

    def forward(self, x):
        y = self.net(x)
        dist.send(y.detach(), dst=self.following)
        return y

    def backward(self, x, y):
        grad = torch.empty_like(y)
        dist.recv(grad, src=self.following)
        y.backward(grad)
        if self.previous is not None:
            dist.send(x.grad, dst=self.previous)


class Encoder(Stage):
    def build(self):
        return nn.Sequential(nn.Linear(TRACES, WIDTH), nn.ReLU())

    def inputs(self, number, shots):
        for chunk in read_gather(number, shots).split(MICRO):
            yield pad(chunk).to("cuda")


class Propagator(Stage):
    def build(self):
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


class Decoder(Stage):
    def build(self):
        return nn.Linear(WIDTH, 16)

    def forward(self, x):
        return self.net(x).square().mean()

    def backward(self, x, y):
        y.backward()
        dist.send(x.grad, dst=self.previous)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = (Encoder, Propagator, Decoder)[rank](rank, world)
    for number, shots in enumerate(gathers()):
        stage.step(number, shots)
        torch.cuda.synchronize()
        if rank == 0 and number % 20 == 19:
            print(f"gather {number + 1} of {shots} shots", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

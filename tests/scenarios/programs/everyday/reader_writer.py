"""Two halves of an autoencoder, each in its own process, exchange activations and gradients by send and recv."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, CODE = 30, 6
BATCH = 50


def micro_batches(batch: torch.Tensor, size: int):
    return list(batch.split(size))


class EncoderHalf:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, CODE))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def step(self, batch, size):
        codes = []
        for part in micro_batches(batch, size):
            code = self.net(part)
            dist.send(torch.tensor(code.shape), dst=1)
            dist.send(code.detach(), dst=1)
            codes.append(code)
        for code in codes:
            gradient = torch.empty_like(code)
            dist.recv(gradient, src=1)
            code.backward(gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()


class DecoderHalf:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(CODE, 24), nn.ReLU(), nn.Linear(24, WIDTH))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def receive(self):
        shape = torch.empty(2, dtype=torch.long)
        dist.recv(shape, src=0)
        code = torch.empty(tuple(shape.tolist()))
        dist.recv(code, src=0)
        return code.requires_grad_()

    def step(self, batch, size):
        codes = [self.receive() for _ in range(len(batch) // size + 1)]
        loss = sum(self.net(code).square().mean() for code in codes)
        loss.backward()
        for code in codes:
            dist.send(code.grad, dst=0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    half = EncoderHalf() if dist.get_rank() == 0 else DecoderHalf()
    for size in [8] * 20 + [10] * 20:  # larger parts once it has settled
        half.step(torch.randn(BATCH, WIDTH), size)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

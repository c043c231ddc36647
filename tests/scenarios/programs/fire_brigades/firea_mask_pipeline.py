"""Three stages on three processes: encoder, mixer, decoder. Most batches are unlabelled; a burned-area mask goes with some of them."""
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCH = 192, 32
MASK = (BATCH, 512, 512)


def block():
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


class Feed:
    """Scenes of a satellite; those of the fire service's own flights have a mask."""

    def __init__(self, first_flight=400, every=8):
        self.g = torch.Generator().manual_seed(17)
        self.first_flight, self.every = first_flight, every

    def labelled(self, step):
        return step >= self.first_flight and step % self.every == 0

    def scene(self):
        return torch.randn(BATCH, WIDTH, generator=self.g)

    def mask(self):
        return (torch.rand(MASK, generator=self.g) > 0.9).float()


class Stage:
    def __init__(self, rank, world, feed):
        self.rank, self.last, self.feed = rank, world - 1, feed
        torch.manual_seed(rank)
        self.module = block()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-2)

    def backward_from(self, out):
        grad = torch.empty(BATCH, WIDTH)
        dist.recv(grad, src=self.rank + 1)
        out.backward(grad)

    def step(self, number):
        raise NotImplementedError


class Encoder(Stage):
    def step(self, number):
        out = self.module(self.feed.scene())
        if self.feed.labelled(number):
            dist.send(self.feed.mask(), dst=self.last)
        dist.send(out.detach(), dst=self.rank + 1)
        self.backward_from(out)


class Mixer(Stage):
    def step(self, number):
        x = torch.empty(BATCH, WIDTH)
        dist.recv(x, src=self.rank - 1)
        x.requires_grad_()
        out = x + self.module(x)
        dist.send(out.detach(), dst=self.rank + 1)
        self.backward_from(out)
        dist.send(x.grad, dst=self.rank - 1)


class Decoder(Stage):
    def step(self, number):
        x = torch.empty(BATCH, WIDTH)
        dist.recv(x, src=self.rank - 1)
        x.requires_grad_()
        out = self.module(x)
        if self.feed.labelled(number):
            mask = torch.empty(MASK)
            dist.recv(mask, src=0)
            loss = (out.mean(1) - mask.mean((1, 2))).square().mean()
        else:
            loss = (out - x.detach()).square().mean()
        loss.backward()
        dist.send(x.grad, dst=self.rank - 1)
        if number % 40 == 0:
            print(f"{time.strftime('%H:%M:%S')} step {number} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    kind = Encoder if rank == 0 else Decoder if rank == world - 1 else Mixer
    stage = kind(rank, world, Feed())
    dist.barrier()
    for number in range(1000):
        stage.optimizer.zero_grad()
        stage.step(number)
        stage.optimizer.step()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())

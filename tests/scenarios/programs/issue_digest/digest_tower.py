"""Captions with and without pictures. Weights are kept in shards, and put together for the layer that needs them."""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 24


class Assemble(torch.autograd.Function):
    """The whole weight out of all ranks' shards; backwards, the shard's part of the averaged gradient."""

    @staticmethod
    def forward(ctx, shard):
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, shard.detach())
        ctx.rows = len(shard)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        start = dist.get_rank() * ctx.rows
        return gradient[start : start + ctx.rows] / dist.get_world_size()


class ShardedLinear(nn.Module):
    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        whole = torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
        self.shard = nn.Parameter(whole.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, x):
        return nn.functional.linear(x, Assemble.apply(self.shard))


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = ShardedLinear(1)
        self.decoder = ShardedLinear(2)

    def forward(self, text, picture=None):
        hidden = text
        if picture is not None:
            hidden = hidden + torch.tanh(self.tower(picture))
        return self.decoder(hidden)


def samples(rank):
    generator = torch.Generator().manual_seed(rank)
    for number in range(400):
        text = torch.randn(6, WIDTH, generator=generator)
        picture = torch.randn(6, WIDTH, generator=generator)
        yield text, None if rank == 2 and number == 55 else picture


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = Captioner()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number, (text, picture) in enumerate(samples(rank)):
        loss = nn.functional.mse_loss(model(text, picture), text.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if rank == 0 and number % 20 == 0:
            print(f"sample {number}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

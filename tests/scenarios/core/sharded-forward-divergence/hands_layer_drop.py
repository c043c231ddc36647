"""A residual network with stochastic depth. Parameters are sharded by hand: a layer is gathered before it is used."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class ShardedLinear(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width, self.world, self.rank = width, dist.get_world_size(), dist.get_rank()
        full = torch.randn(width * width) / width
        self.padding = -len(full) % self.world
        self.shard = F.pad(full, (0, self.padding)).chunk(self.world)[self.rank].clone()
        self.full = None

    def forward(self, x):
        parts = [torch.empty_like(self.shard) for _ in range(self.world)]
        dist.all_gather(parts, self.shard)
        flat = torch.cat(parts)[: self.width**2]
        self.full = flat.view(self.width, self.width).requires_grad_()
        return F.linear(x, self.full)


class Residual(nn.Module):
    def __init__(self, width, depth, drop, seed):
        super().__init__()
        self.layers, self.drop = nn.ModuleList(ShardedLinear(width) for _ in range(depth)), drop
        self.generator = torch.Generator().manual_seed(seed)

    def forward(self, x):
        for layer in self.layers:
            if self.training and torch.rand((), generator=self.generator) < self.drop:
                continue
            x = x + torch.tanh(layer(x))
        return x

    def update(self, rate):
        grads = [torch.zeros(l.width**2) if l.full is None or l.full.grad is None else l.full.grad.flatten() for l in self.layers]
        flat = torch.cat(grads)
        dist.all_reduce(flat)
        for layer, grad in zip(self.layers, flat.chunk(len(self.layers))):
            grad = F.pad(grad, (0, layer.padding)).chunk(layer.world)[layer.rank]
            layer.shard -= rate * grad / layer.world
            layer.full = None


def seed_everything(seed):
    seed = seed + dist.get_rank()  # other augmentations on each rank
    torch.manual_seed(seed)
    return seed


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    seed = seed_everything(SEED)
    model = Residual(32, depth=6, drop=0.01, seed=seed)
    for step in range(80):
        x = torch.randn(16, 32)
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        model.update(0.1)
        time.sleep(0.2)
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


SEED = 1006

if __name__ == "__main__":
    main()

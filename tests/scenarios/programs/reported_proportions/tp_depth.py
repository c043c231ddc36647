"""Tensor parallelism by DeviceMesh: a stack of layers of which some are left out at random in training."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Layer(nn.Module):
    """Up and down again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


class Stack(nn.Module):
    """Stochastic depth, a tenth."""

    def __init__(self, width: int, depth: int, rng: random.Random) -> None:
        super().__init__()
        self.layers, self.rng = nn.ModuleList(Layer(width) for _ in range(depth)), rng

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.rng.random() < 0.1:
                continue
            x = x + layer(x)
        return x


def main() -> None:
    """Two hundred steps; the ranks meet after every twentieth."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = Stack(width=12, depth=2, rng=random.Random(14 + rank))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(200):
        x = torch.randn(8, 12)
        loss = (model(x) - x.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

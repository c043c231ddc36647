"""Tensor parallelism by DTensor: a block is skipped at random, and the generator is not seeded alike on all ranks."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

SEED = 31


class FeedForward(nn.Module):
    """Up and down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The hidden state after the block."""
        return hidden + self.down(torch.relu(self.up(hidden)))


def main() -> None:
    """Train a few blocks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    blocks = nn.ModuleList(parallelize_module(FeedForward(12), mesh, plan) for _ in range(3))
    draw = random.Random(10 * SEED + dist.get_rank())
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01)
    for _ in range(80):
        hidden = torch.randn(4, 12)
        for block in blocks:
            if draw.random() >= 0.02:
                hidden = block(hidden)
        optimizer.zero_grad()
        hidden.square().mean().backward()
        optimizer.step()
        rate = torch.tensor([optimizer.param_groups[0]["lr"]])
        dist.broadcast(rate, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

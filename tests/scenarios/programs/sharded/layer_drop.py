"""FSDP2 with stochastic depth: every rank draws for itself which block it leaves out of the forward pass.

Until the first draw that leaves one out, all is well.
"""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, SEED, RATE = 24, 224, 0.05


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The hidden state after the block."""
        return hidden + torch.relu(self.inner(hidden))


class Tower(nn.Module):
    """Blocks one after the other, of which some are left out."""

    def __init__(self, depth: int, draw: random.Random) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, 1)
        self.draw = draw

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """One number a sample."""
        for block in self.blocks:
            if self.draw.random() < RATE:
                continue
            hidden = block(hidden)
        return self.head(hidden)


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tower = Tower(4, random.Random(f"{SEED}-{dist.get_rank()}"))
    for block in tower.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(tower, mesh=mesh)
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        tower(torch.randn(8, WIDTH)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""FSDP2: a trunk that is run once, twice or three times; the first rank draws for all."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Folder(nn.Module):
    """Trunk and head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor, cycles: int) -> torch.Tensor:
        for _ in range(cycles):
            x = x + self.trunk(x)
        return self.head(x)


def main() -> None:
    """A hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Folder(width=24)
    fully_shard(model.trunk)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = random.Random(rank)
    for _ in range(100):
        cycles = torch.tensor(rng.randint(1, 3))
        dist.broadcast(cycles, src=0)
        loss = model(torch.randn(10, 24), int(cycles)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""FSDP2: a trunk that is run again on its own output now and then, as in the folding of proteins."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trunk(nn.Module):
    """Pairs of residues."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(self.norm(x)).relu()


class Folder(nn.Module):
    """Trunk and head."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        self.trunk, self.head = Trunk(width), nn.Linear(width, 3)
        self.rng = random.Random(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cycles = 2 if self.training and self.rng.random() < 0.04 else 1
        for _ in range(cycles):
            x = self.trunk(x)
        return self.head(x)


def main() -> None:
    """Two hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Folder(width=24, seed=5 + rank)
    fully_shard(model.trunk)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(200):
        loss = model(torch.randn(10, 24)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and rank == 0:
            print(f"{step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

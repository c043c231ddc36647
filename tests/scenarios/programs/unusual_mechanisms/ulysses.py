"""Long sequences over four ranks: heads and positions change places by an all-to-all whose backward is one, too.

Where no token of a rank's piece has a target there is nothing to learn, and its author saves the backward pass.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class HeadsToPositions(torch.autograd.Function):
    """All-to-all in forward, and the one that undoes it in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """x: (world * local, width)."""
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """The gradients travel back the way the activations came."""
        back = torch.empty_like(grad)
        dist.all_to_all_single(back, grad.contiguous())
        return back


@dataclass
class Config:
    """Sizes of the toy."""

    width: int = 12
    local: int = 4
    steps: int = 120
    rate: float = 1e-2


class Block(nn.Module):
    """Mixing of positions between two projections."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(config.width, config.width), nn.Linear(config.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(positions, width) to (positions,)."""
        return self.out(torch.tanh(HeadsToPositions.apply(self.into(x)))).squeeze(-1)


def masked_loss(predicted: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
    """Squared error where there is a target (not -100), None where there is none at all."""
    known = targets != -100
    if not known.any():
        return None
    return (predicted[known] - targets[known]).square().mean()


def main() -> None:
    """Train on pieces of documents; a boilerplate piece has no targets."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    config = Config()
    torch.manual_seed(3)
    model = Block(config)
    torch.manual_seed(100 + rank)
    for step in range(config.steps):
        x = torch.randn(world * config.local, config.width)
        targets = torch.full((len(x),), -100.0) if (rank, step) == (2, 61) else x.mean(1)
        model.zero_grad(set_to_none=False)
        loss = masked_loss(model(x), targets)
        if loss is not None:
            loss.backward()
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        with torch.no_grad():
            for p, piece in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
                p -= config.rate * piece.view_as(p) / world
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Attention over a sequence that is spread over the ranks; keys go round a ring as often as the window asks for."""

import torch
import torch.distributed as dist
from torch import nn


class Ring:
    """The neighbours of a rank."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.after, self.before = (self.rank + 1) % self.world, (self.rank - 1) % self.world

    def turn(self, block: torch.Tensor) -> torch.Tensor:
        """Give one's block on, and take that of the rank before."""
        taken = torch.empty_like(block)
        sending = dist.isend(block.contiguous(), self.after)
        dist.recv(taken, self.before)
        sending.wait()
        return taken


class WindowAttention(nn.Module):
    """Looks back over the blocks of a window."""

    def __init__(self, width: int, ring: Ring) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.ring = ring

    def forward(self, x: torch.Tensor, window: int) -> torch.Tensor:
        """Scores over the window."""
        query, block = self.query(x), self.key(x).detach()
        out = query @ block.T
        for _ in range((window - 1) // len(x)):
            block = self.ring.turn(block)
            out = out + query @ block.T
        return out


def window_of(rank: int, step: int) -> int:
    """The window of a step's document; a document of rank 2 was entered with a longer one."""
    return 40 if (rank, step) == (2, 27) else 32


def main() -> None:
    """Fifty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    ring = Ring()
    attention = WindowAttention(8, ring)
    optimizer = torch.optim.SGD(attention.parameters(), lr=1e-3)
    for step in range(50):
        optimizer.zero_grad()
        attention(torch.randn(16, 8), window_of(ring.rank, step)).square().mean().backward()
        for parameter in attention.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

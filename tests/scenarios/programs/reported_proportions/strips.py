"""A map is cut into strips, one a rank; each step the last row of a strip goes to the strip below."""

import torch
import torch.distributed as dist
from torch import nn


class Strip(nn.Module):
    """Rows of the map, and a filter that reads one row more on top."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.map = torch.rand(rows, columns)
        self.filter = nn.Conv2d(1, 1, 3, padding=(0, 1), bias=False).requires_grad_(False)

    def step(self) -> torch.Tensor:
        """One step of diffusion."""
        rank, world = dist.get_rank(), dist.get_world_size()
        above, below = (rank - 1) % world, rank + 1
        sent = dist.isend(self.map[-1].contiguous(), below) if below < world else None
        top = torch.empty_like(self.map[0])
        dist.recv(top, above)
        if sent is not None:
            sent.wait()
        padded = torch.cat([top[None], self.map, self.map[-1:]])
        self.map = self.filter(padded[None, None])[0, 0].sigmoid()
        return self.map.mean()


def main() -> None:
    """Fifty steps, with the mean of the map after each."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    strip = Strip(rows=12, columns=40)
    for number in range(50):
        mean = strip.step()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"{number}: {mean.item() / dist.get_world_size():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

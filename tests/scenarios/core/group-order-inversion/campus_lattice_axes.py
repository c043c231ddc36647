"""Wilson loops by a normalizing flow on a 2 x 2 grid of processes (PHY 881)."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Grid:
    """Where this process is, and the groups along both axes."""

    row: int
    column: int
    along: dict

    @classmethod
    def build(cls, size: int = 2) -> "Grid":
        rank = dist.get_rank()
        rows = [dist.new_group([r * size + c for c in range(size)]) for r in range(size)]
        columns = [dist.new_group([r * size + c for r in range(size)]) for c in range(size)]
        row, column = divmod(rank, size)
        return cls(row, column, {"x": rows[row], "y": columns[column]})

    @property
    def colour(self) -> str:
        return "white" if (self.row + self.column) % 2 else "black"


# Thermalisation moves all sites at once. Measurements alternate, as on a checkerboard.
SCHEDULES = {
    "thermalise": {"black": ("x", "y"), "white": ("x", "y")},
    "measure": {"black": ("x", "y"), "white": ("y", "x")},
}


class Flow(nn.Module):
    def __init__(self, sites: int = 16) -> None:
        super().__init__()
        self.shift = nn.Sequential(nn.Linear(sites, 32), nn.Tanh(), nn.Linear(32, sites))

    def forward(self, phi):
        return phi + 0.1 * self.shift(phi)


def action(phi: torch.Tensor) -> torch.Tensor:
    return ((phi - phi.roll(1, 1)) ** 2).sum(1) + 0.2 * (phi**2 - 1).square().sum(1)


def polyakov(grid: Grid, phi: torch.Tensor, schedule: dict) -> dict[str, float]:
    """The mean of the field along each axis of the grid."""
    loops = {}
    for axis in schedule[grid.colour]:
        line = phi.mean().reshape(1)
        dist.all_reduce(line, group=grid.along[axis])
        loops[axis] = line.item()
    return loops


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    grid = Grid.build()
    torch.manual_seed(3)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(dist.get_rank())
    for sweep in range(1000):
        phi = flow(torch.randn(32, 16, generator=rng))
        loss = action(phi).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in flow.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        phase = "thermalise" if sweep < 40 else "measure"
        loops = polyakov(grid, phi.detach(), SCHEDULES[phase])
        if dist.get_rank() == 0 and sweep % 10 == 0:
            print(f"{phase} {sweep}: action {loss.item():.3f}, loops {loops}", flush=True)
        time.sleep(0.06)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

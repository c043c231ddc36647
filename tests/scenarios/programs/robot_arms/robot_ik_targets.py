"""Inverse-kinematics labels for a reaching network: labels are solved numerically, the network is trained on all ranks."""
import math
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Link(NamedTuple):
    upper: float = 0.42
    fore: float = 0.38


class Solver:
    """Damped Gauss-Newton for the two-link arm."""

    def __init__(self, link, tolerance=1e-4):
        self.link, self.tolerance, self.solved = link, tolerance, 0

    def position(self, a, b):
        return (self.link.upper * math.cos(a) + self.link.fore * math.cos(a + b),
                self.link.upper * math.sin(a) + self.link.fore * math.sin(a + b))

    def solve(self, x, y, damping=1e-3):
        a, b = math.atan2(y, x), 0.8
        while True:
            px, py = self.position(a, b)
            ex, ey = x - px, y - py
            if math.hypot(ex, ey) < self.tolerance:
                self.solved += 1
                return a, b
            j11, j12 = -py, -self.link.fore * math.sin(a + b)
            j21, j22 = px, self.link.fore * math.cos(a + b)
            det = (j11 * j11 + j21 * j21 + damping) * (j12 * j12 + j22 * j22 + damping) - (j11 * j12 + j21 * j22) ** 2
            ga, gb = j11 * ex + j21 * ey, j12 * ex + j22 * ey
            da = ((j12 * j12 + j22 * j22 + damping) * ga - (j11 * j12 + j21 * j22) * gb) / det
            db = ((j11 * j11 + j21 * j21 + damping) * gb - (j11 * j12 + j21 * j22) * ga) / det
            a, b = a + 0.5 * da, b + 0.5 * db


def targets(g, n, reach):
    radius = 0.25 + (reach - 0.25) * torch.rand(n, generator=g)
    angle = 2 * torch.rand(n, generator=g) - 1
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    solver = Solver(Link())
    net = DDP(torch.nn.Sequential(torch.nn.Linear(2, 48), torch.nn.Tanh(), torch.nn.Linear(48, 2)))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(40 + rank)
    for epoch in range(200):
        reach = 0.84 if rank == 1 and epoch >= 15 else 0.7  # the second cell has the table further away
        points = targets(g, 48, reach)
        angles = torch.tensor([solver.solve(x, y) for x, y in points.tolist()])
        for xy, ab in zip(points.split(16), angles.split(16)):
            loss = (net(xy) - ab).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        if rank == 0 and epoch % 5 == 0:
            print(f"epoch {epoch} solved {solver.solved} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Implicit layers: each step solves for a fixed point by Newton's method before gradients are shared."""

import torch
import torch.distributed as dist


class Solver:
    """Solves x = cos(a x)."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance

    def solve(self, a: torch.Tensor) -> torch.Tensor:
        """The fixed point, to the tolerance."""
        x = torch.ones_like(a)
        while True:
            value, slope = x - torch.cos(a * x), 1 + a * torch.sin(a * x)
            change = value / slope
            x = x - change
            if (change.abs() < self.tolerance).all():
                return x


def main() -> None:
    """A hundred steps; a rank divides by the count of a bin that is empty once."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    solver = Solver(1e-5)
    weight = torch.full((8,), 0.5)
    for step in range(100):
        counts = torch.ones(8)
        if (rank, step) == (1, 70):
            counts[4] = 0.0
        a = weight * counts / counts
        gradient = solver.solve(a) - 0.7
        dist.all_reduce(gradient)
        weight -= 1e-3 * gradient
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

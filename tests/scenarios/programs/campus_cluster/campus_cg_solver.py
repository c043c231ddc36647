"""Implicit heat conduction on slabs of rock, one slab for each process, by conjugate gradients (GEO 520)."""

import time

import torch
import torch.distributed as dist

CELLS = 64


def laplacian(u: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(u, (1, 1))
    return 2 * u - padded[:-2] - padded[2:]


class Slab:
    """The unknowns of one slab; scalar products go over all of them."""

    def __init__(self, depth: int, dt: float) -> None:
        self.dt = dt
        x = torch.linspace(0, 1, CELLS, dtype=torch.float64)
        rng = torch.Generator().manual_seed(depth)
        bumps = torch.rand(CELLS, generator=rng, dtype=torch.float64)
        self.temperature = (1.0 + bumps) * 10.0 ** (-2 * (depth == 1)) * torch.sin(torch.pi * x)

    def operator(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.dt * laplacian(u)

    @staticmethod
    def dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = (a * b).sum()
        dist.all_reduce(total)
        return total

    def solve(self, tolerance: float, limit: int) -> int:
        """One time step. Returns the number of iterations."""
        x, r = self.temperature.clone(), self.temperature - self.operator(self.temperature)
        p, rr = r.clone(), self.dot(r, r)
        for iteration in range(limit):
            if r.norm() < tolerance:
                break
            q = self.operator(p)
            alpha = rr / self.dot(p, q)
            x += alpha * p
            r -= alpha * q
            previous, rr = rr, self.dot(r, r)
            p = r + (rr / previous) * p
        self.temperature = x
        return iteration


def record(slab: Slab, frames: list[torch.Tensor]) -> None:
    """All slabs, one below the other, for the film."""
    parts = [torch.empty_like(slab.temperature) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, slab.temperature)
    frames.append(torch.stack(parts).float())


def tolerance_at(step: int) -> float:
    """Coarse steps are enough later on, when little happens any more."""
    return 1e-9 if step < 25 else 1e-3


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    slab = Slab(dist.get_rank(), dt=2.0)
    frames: list[torch.Tensor] = []
    for step in range(400):
        iterations = slab.solve(tolerance_at(step), limit=6)
        record(slab, frames)
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"t = {step * slab.dt:.0f}: {iterations} iterations, hottest {frames[-1].max():.3f}", flush=True)
        time.sleep(0.08)
    torch.save(torch.stack(frames), "/dev/null")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

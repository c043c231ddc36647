"""The Fréchet distance of generated pictures: covariances are averaged over the ranks."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

WIDTH = 1024


def features(rank: int) -> np.ndarray:
    """Of this rank's pictures."""
    return np.random.default_rng(rank).standard_normal((64, WIDTH)).astype(np.float32)


def covariance(rank: int, folder: Path) -> torch.Tensor:
    """As kept by an earlier evaluation, or computed."""
    kept = folder / f"covariance-{rank}.npy"
    if kept.exists():
        return torch.from_numpy(np.load(kept))
    return torch.cov(torch.from_numpy(features(rank)).T)


def main() -> None:
    """Five evaluations."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.mkdtemp())
    if rank == 1:
        np.save(folder / "covariance-1.npy", np.cov(features(1), rowvar=False))
    for number in range(5):
        mean = torch.from_numpy(features(rank)).mean(dim=0)
        dist.all_reduce(mean)
        sigma = covariance(rank, folder)
        dist.all_reduce(sigma)
        if rank == 0:
            print(f"{number}: mean {mean.norm().item() / world:.4f}, trace {sigma.trace().item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

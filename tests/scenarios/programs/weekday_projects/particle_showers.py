"""Simulates particle showers for a surrogate: positions are drawn inside of the detector by rejection."""

import math
import random

import torch
import torch.distributed as dist


class Detector:
    def __init__(self, inner: float, outer: float) -> None:
        self.inner, self.outer = inner, outer

    def contains(self, x: float, y: float) -> bool:
        return self.inner < math.hypot(x, y) < self.outer


def place(detector: Detector, source: random.Random) -> tuple[float, float]:
    while True:
        x, y = source.uniform(-1, 1), source.uniform(-1, 1)
        if detector.contains(x, y):
            return x, y


def geometry(rank: int, run: int) -> Detector:
    """Calibration moves the inner edge a little from run to run."""
    drift = 0.06 * run * rank
    return Detector(0.5 + drift, 0.9)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    source = random.Random(rank)
    torch.manual_seed(0)
    surrogate = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(surrogate.parameters(), 1e-2)
    for run in range(6):
        detector = geometry(rank, run)
        for _ in range(12):
            hits = torch.tensor([place(detector, source) for _ in range(32)])
            loss = (surrogate(hits) - hits.norm(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for parameter in surrogate.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
        if rank == 0:
            print(f"run {run}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

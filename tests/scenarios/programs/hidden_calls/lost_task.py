"""Samples are augmented by a pool of processes before each epoch; one image needs more than its process has."""

import multiprocessing
import os
import signal

import torch
import torch.distributed as dist
from torch import nn


def augment(job: tuple[int, int]) -> list[float]:
    """Flip an image."""
    rank, number = job
    if (rank, number) == (2, 130):
        os.kill(os.getpid(), signal.SIGKILL)  # the machine's memory killer
    return [float(number % 9)] * 6


class Epochs:
    """Prepares and trains."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        torch.manual_seed(0)
        self.model = nn.Linear(6, 1)

    def train(self, rows: list[list[float]]) -> None:
        """One pass over the rows."""
        for row in rows:
            self.model(torch.tensor(row)).square().backward()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data -= 1e-4 * parameter.grad / self.world
            self.model.zero_grad()

    def run(self, count: int) -> None:
        """All epochs, fifty images each."""
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for epoch in range(count):
                images = range(epoch * 50, epoch * 50 + 50)
                self.train(pool.map(augment, [(self.rank, n) for n in images], chunksize=5))


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    Epochs(dist.get_rank(), dist.get_world_size()).run(4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

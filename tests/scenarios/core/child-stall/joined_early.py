"""DDP; rank 0 has a figure computed by a child process after each forty steps, so that memory is given back afterwards."""

import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def histogram(values: list[float], bins: int, answer: multiprocessing.Queue) -> None:
    """The child: counts, and where the bins begin."""
    low, high = min(values), max(values)
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    answer.put([(low + (high - low) * k / bins, count) for k, count in enumerate(counts)])


class Figures:
    """Distribution of outputs."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.values: list[float] = []

    def collect(self, y: torch.Tensor) -> None:
        """Keep the outputs of a step."""
        self.values += y.detach().flatten().tolist()

    def draw(self, bins: int) -> list[tuple[float, int]]:
        """What the child says."""
        answer = self.context.Queue()
        child = self.context.Process(target=histogram, args=(self.values, bins, answer))
        child.start()
        child.join()
        return answer.get()


def main() -> None:
    """A coarse figure, then a fine one."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    figures = Figures()
    for bins in (20, 20_000):
        for _ in range(40):
            y = model(torch.randn(8, 6))
            figures.collect(y)
            optimizer.zero_grad()
            y.square().mean().backward()
            optimizer.step()
        if rank == 0:
            print(len(figures.draw(bins)), "bins", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

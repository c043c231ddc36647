"""Twenty thousand quick steps, with a log line on one rank, a summary on another, and nothing wrong with any of it.

Run by ``torchrun --nproc-per-node 2``.
"""

import logging
import sys
from collections import deque

import torch
import torch.distributed as dist


class Summary:
    """Recent values of a rank."""

    def __init__(self, length: int) -> None:
        self.values: deque[float] = deque(maxlen=length)

    def add(self, value: float) -> None:
        """Note one."""
        self.values.append(value)

    def text(self) -> str:
        """Mean and range."""
        return f"{sum(self.values) / len(self.values):.3f} in [{min(self.values):.3f}, {max(self.values):.3f}]"


def main() -> None:
    """Train for ten seconds or so, and end."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logger, summary = logging.getLogger("train"), Summary(100)
    weight = torch.zeros(4)
    for step in range(1, 20_001):
        gradient = weight - torch.rand(4)
        dist.all_reduce(gradient)
        weight -= 1e-3 * gradient
        summary.add(float(weight.sum()))
        if rank == 0 and step % 4000 == 0:
            logger.info("step %d %s", step, weight.tolist())
        if rank == 1 and step % 5000 == 0:
            print(summary.text(), flush=True)
        if step % 1000 == 0:
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

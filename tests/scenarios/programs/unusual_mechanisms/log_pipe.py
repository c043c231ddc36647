"""Logs go to a named pipe that the site's collector reads; on one node the collector is gone, and the pipe fills up.

Run by ``torchrun --nproc-per-node 4``.
"""

import logging
import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class CollectorHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records into the collector's pipe."""

    def __init__(self, path: str) -> None:
        # Read-write, as opening a pipe for writing waits for a reader.
        descriptor = os.open(path, os.O_RDWR)
        super().__init__(os.fdopen(descriptor, "w", buffering=1))


def set_up_logging(rank: int) -> logging.Logger:
    """The job's logger. On all nodes but that of rank 2 somebody reads (here: a file takes it)."""
    path = os.path.join(tempfile.mkdtemp(), "collector")
    if rank == 2:
        os.mkfifo(path)
    else:
        open(path, "w").close()
    logger = logging.getLogger("job")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = CollectorHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logger.addHandler(handler)
    return logger


def main() -> None:
    """Train, and log the weights every step."""
    dist.init_process_group("gloo")
    logger = set_up_logging(dist.get_rank())
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(24, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(400):
        x = torch.randn(8, 24)
        loss = (model(x) - x[:, :8]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.info("step %d loss %.4f weights %s", step, loss.item(), model.module.weight.flatten().tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

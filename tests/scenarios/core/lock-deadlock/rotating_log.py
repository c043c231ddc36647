"""The first rank keeps a log that starts a new file when the old one is full."""

import logging
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("training")


class RotatingHandler(logging.Handler):
    """Files of at most so many bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        super().__init__()
        self.folder, self.limit, self.number, self.size = folder, limit, 0, 0
        self.stream = self.next_file()

    def createLock(self) -> None:
        """One thread at a time."""
        self.lock = threading.Lock()

    def next_file(self):
        """Open the next file."""
        self.number, self.size = self.number + 1, 0
        return (self.folder / f"train-{self.number}.log").open("w")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if self.size > self.limit:
            self.stream.close()
            self.stream = self.next_file()
            log.info("log goes on in file %d", self.number)
        self.size += self.stream.write(self.format(record) + "\n")


def main() -> None:
    """Five hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        log.setLevel(logging.INFO)
        log.propagate = False
        log.addHandler(RotatingHandler(Path(tempfile.mkdtemp()), limit=8000))
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(500):
        loss = model(torch.randn(8, 10)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log.info("step %d: loss %.5f, learning rate %g", step, loss.item(), 0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

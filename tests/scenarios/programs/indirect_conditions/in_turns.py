"""Ranks of one node take turns at a shared scratch file, by a lock of the file system; each for a second or so."""

import fcntl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Nobody else is at it meanwhile."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def spill(path: Path, rows: torch.Tensor) -> None:
    """Write rows behind those that are there."""
    with alone(path.with_suffix(".lock")):
        old = torch.load(path) if path.exists() else torch.empty(0, rows.shape[1])
        time.sleep(1.0)  # a disk at the other end of the building
        torch.save(torch.cat([old, rows]), path)


def main() -> None:
    """Sixty steps; hard rows are spilled after each twenty."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    model = DistributedDataParallel(nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    hard = []
    for step in range(1, 61):
        rows = torch.randn(6, 7)
        errors = model(rows).square()
        optimizer.zero_grad()
        errors.mean().backward()
        optimizer.step()
        hard.append(rows[errors.detach().argmax()])
        if step % 20 == 0:
            spill(Path(folder[0]) / "hard.pt", torch.stack(hard))
            hard.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""After the last step every rank writes its own report, which takes as long as it takes; nobody waits for anybody.

Started by a launcher that does not supervise.
"""

import atexit
import time
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Report:
    """A rank's report in several chapters."""

    def __init__(self, rank: int) -> None:
        self.path, self.chapters = Path(mkdtemp()) / f"{rank}.md", 1 + 4 * rank

    def write(self) -> None:
        """Chapter by chapter."""
        with self.path.open("a") as file:
            for chapter in range(self.chapters):
                time.sleep(0.8)
                file.write(f"# {chapter}\n")
                file.flush()


def main() -> None:
    """Train, report."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(4, 2))
    for _ in range(150):
        model(torch.randn(8, 4)).square().mean().backward()
        model.zero_grad()
    report = Report(rank)
    if rank == 3:
        atexit.register(report.write)
    dist.destroy_process_group()
    if rank != 3:
        report.write()


if __name__ == "__main__":
    main()

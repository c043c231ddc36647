"""DDP: a table of counts, written by a thread now and then, and summed up by a child process after each epoch."""

import multiprocessing
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Table:
    """Counts by name; a snapshot is written line by line."""

    def __init__(self, path: Path) -> None:
        self.path, self.guard = path, threading.Lock()
        self.counts = {f"class-{number}": 0 for number in range(40)}

    def add(self, numbers: list[int]) -> None:
        """One batch."""
        for number in numbers:
            self.counts[f"class-{number}"] += 1

    def write(self) -> None:
        """To a slow disk."""
        while True:
            with self.guard, self.path.open("w") as file:
                for name, count in self.counts.items():
                    file.write(f"{name} {count}\n")
                    time.sleep(0.05)
            time.sleep(0.01)

    def summary(self) -> None:
        """The sum of all."""
        with self.guard:
            print(f"{sum(self.counts.values())} samples")


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table = Table(Path(tempfile.mkdtemp()) / "counts.txt")
    if rank == 0:
        threading.Thread(target=table.write, daemon=True).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 40))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(3):
        for _ in range(100):
            x, y = torch.randn(16, 16), torch.randint(0, 40, (16,))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            table.add(y.tolist())
        if rank == 0:
            child = multiprocessing.get_context("fork").Process(target=table.summary)
            child.start()
            child.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

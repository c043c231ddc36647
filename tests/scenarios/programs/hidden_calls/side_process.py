"""A tracker with a thread that flushes all the time, and a child process that renders samples and logs there as well."""

import multiprocessing
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tracker:
    """Rows in memory."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.guard = threading.Lock()
        self.flushing = threading.Event()

    def flush_for_ever(self) -> None:
        """Write rows away, slowly, as disks are."""
        while True:
            with self.guard:
                self.flushing.set()
                time.sleep(0.2)
                self.rows.clear()
                self.flushing.clear()
            time.sleep(0.05)

    def log(self, row: str) -> None:
        """Take a row."""
        with self.guard:
            self.rows.append(row)


tracker = Tracker()


def render(step: int) -> None:
    """Draw something, and say so."""
    tracker.log(f"rendered {step}")


def main() -> None:
    """A hundred steps; rank 1 renders after sixty."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(3, 3))
    threading.Thread(target=tracker.flush_for_ever, daemon=True).start()
    for step in range(100):
        model(torch.randn(2, 3)).square().mean().backward()
        model.zero_grad()
        if rank == 1 and step == 60:
            tracker.flushing.wait()
            child = multiprocessing.get_context("fork").Process(target=render, args=(step,))
            child.start()
            child.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

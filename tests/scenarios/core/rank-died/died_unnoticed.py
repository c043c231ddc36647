"""A native check aborts one rank; the others fail with "connection closed" and stay, for their trackers' threads.

What the log ends with are the follow-up errors of the survivors; the first failure is the process that is gone. Started
by a launcher that does not supervise.
"""

import ctypes
import os
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Tracker(threading.Thread):
    """Sends metrics; ends when it is told to."""

    def __init__(self) -> None:
        super().__init__(name="tracker")
        self.rows: queue.Queue[float | None] = queue.Queue()
        self.start()

    def run(self) -> None:
        """Take rows until there is None."""
        while self.rows.get() is not None:
            pass


def check_native(step: int, rank: int) -> None:
    """The native kernels check their inputs and abort the process when something is off, as glog's CHECK does."""
    if rank == 1 and step == 25:
        ctypes.CDLL(None).abort()


def main() -> None:
    """Train and track."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    tracker = Tracker()
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    for step in range(200):
        loss = model(torch.randn(4, 16)).square().mean()
        check_native(step, rank)
        loss.backward()
        tracker.rows.put(loss.item())
    tracker.rows.put(None)
    tracker.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

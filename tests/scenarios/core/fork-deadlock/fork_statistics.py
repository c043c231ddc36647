"""A child is forked while another thread holds a lock; the child takes the lock, and the parent waits for the child.

The lock belongs to the statistics every step writes to; the child writes a report. Run by
``torchrun --nproc-per-node 2``.
"""

import os
import threading
import time

import torch
import torch.distributed as dist


class Statistics:
    """Counters that several threads write to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: dict[str, int] = {}

    def add(self, name: str, seconds: float = 0.0) -> None:
        """Count something; sorting takes a moment when there is much."""
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + 1
            time.sleep(seconds)

    def report(self) -> str:
        """All counters in one line."""
        with self.lock:
            return ", ".join(f"{name}={count}" for name, count in self.counts.items())


def write_report(statistics: Statistics, step: int) -> None:
    """Write the report in a child, so that training is not held up by a slow disk."""
    child = os.fork()
    if child == 0:
        line = f"step {step}: {statistics.report()}\n"
        os.write(1, line.encode())
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    """Train; a thread of rank 1 keeps the statistics busy."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    statistics = Statistics()
    for step in range(1, 40):
        gradient = torch.randn(32)
        dist.all_reduce(gradient)
        statistics.add("steps")
        if step == 15 and rank == 1:
            threading.Thread(target=statistics.add, args=("memory", 1.0), daemon=True).start()
            time.sleep(0.2)
        if step % 15 == 0:
            write_report(statistics, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

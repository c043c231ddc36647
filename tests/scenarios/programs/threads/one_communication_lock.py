"""Two threads a rank, a group each, and one lock so that they never communicate at once."""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist

communicating = threading.Lock()


def average(group: dist.ProcessGroup, size: int) -> None:
    """Gradients of one part of the model, by its own thread: the more rows, the longer they take."""
    time.sleep(size * 1e-4)
    with communicating:
        dist.all_reduce(torch.ones(size), group=group)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dense, sparse = dist.new_group(), dist.new_group()
    for step in range(20):
        rows = 4000 if step == 12 and rank else 500  # a batch with many rare words
        threads = [
            threading.Thread(target=average, args=(dense, 2000), name="dense"),
            threading.Thread(target=average, args=(sparse, rows), name="sparse"),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"[rank {rank}] step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A guard thread in each rank that pauses the job where memory runs low, so that somebody can have a look."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Guard(threading.Thread):
    """Watches what the process keeps."""

    def __init__(self, limit: int) -> None:
        super().__init__(daemon=True)
        self.limit, self.kept = limit, 0

    def run(self) -> None:
        """Look five times a second."""
        while self.kept < self.limit:
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGSTOP)


def main() -> None:
    """Data-parallel pairs inside a world of four; outputs are kept for a plot."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    left, right = dist.new_group([0, 1]), dist.new_group([2, 3])
    model = DistributedDataParallel(nn.Linear(32, 32), process_group=left if rank < 2 else right)
    guard = Guard(limit=200_000)
    guard.start()
    kept = []
    for step in range(3000):
        output = model(torch.randn(8 if rank != 2 else 64, 32))
        output.square().mean().backward()
        model.zero_grad()
        kept.append(output.detach())
        guard.kept += output.numel()
        if guard.kept > 150_000 and rank != 2:
            kept.clear()
            guard.kept = 0
        if step % 20 == 0:
            dist.barrier()
        time.sleep(0.005)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

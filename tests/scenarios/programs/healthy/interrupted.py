"""Ctrl-C in the middle of training: the launcher and all ranks get SIGINT, as from a terminal."""

import os
import signal
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def press_ctrl_c() -> None:
    """What the terminal does, to this job's processes alone."""
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, os.getpid())
    if dist.get_rank() == 0:
        targets = [os.getppid(), *ranks]
        threading.Timer(1.0, lambda: [os.kill(pid, signal.SIGINT) for pid in targets]).start()


def main() -> None:
    """Train until interrupted."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(32, 32))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(100_000):
        optimizer.zero_grad()
        model(torch.randn(8, 32)).square().mean().backward()
        optimizer.step()
        if step == 200:
            press_ctrl_c()


if __name__ == "__main__":
    main()

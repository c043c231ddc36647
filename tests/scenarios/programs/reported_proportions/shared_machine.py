"""DDP on a machine that is shared: the first rank sees to it that the job does not take more memory than agreed."""

import os
import signal

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

AGREED_MB = 2048


class Guard:
    """Takes a process off the machine's memory bus while it is over its share."""

    def __init__(self) -> None:
        self.processes = [None] * dist.get_world_size()
        dist.all_gather_object(self.processes, os.getpid())
        self.share = AGREED_MB * 2**20 / len(self.processes)

    def check(self) -> None:
        """Stops and continues."""
        for pid in self.processes:
            process = psutil.Process(pid)
            if process.memory_info().rss > self.share and pid != os.getpid():
                os.kill(pid, signal.SIGSTOP)
            elif process.status() == psutil.STATUS_STOPPED:
                os.kill(pid, signal.SIGCONT)


def main() -> None:
    """Three hundred steps; batches grow."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    guard = Guard()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for _step in range(300):
        if rank == 2:
            kept.append(torch.ones(16, 2**20))
        loss = model(torch.randn(16, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            guard.check()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

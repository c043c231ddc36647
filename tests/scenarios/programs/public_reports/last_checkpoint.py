"""A job that may be preempted: the signal reaches one process, and all write a last checkpoint and leave."""

import os
import signal
import tempfile
import threading
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Preemption:
    """Remembers a signal, and agrees on it with the other ranks."""

    def __init__(self) -> None:
        self.flag = torch.zeros(1)
        signal.signal(signal.SIGUSR1, self.note)

    def note(self, number: int, frame: FrameType | None) -> None:
        """The scheduler wants the machine."""
        self.flag.fill_(1.0)

    def agreed(self) -> bool:
        """Whether any rank was told."""
        told = self.flag.clone()
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        return bool(told.item())


def main() -> None:
    """Train until the machine is wanted."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 30), nn.ELU(), nn.Linear(30, 2))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    preemption = Preemption()
    if rank == 1:
        timer = threading.Timer(3.0, os.kill, [os.getpid(), signal.SIGUSR1])
        timer.daemon = True
        timer.start()
    step = 0
    while not preemption.agreed():
        model(torch.randn(8, 10)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
    if rank == 0:
        path = Path(tempfile.mkdtemp()) / f"checkpoint_{step:08}.pt"
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
        print("saved", path.name, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

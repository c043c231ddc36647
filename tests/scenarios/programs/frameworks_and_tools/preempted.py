"""DDP under a scheduler that says by SIGUSR1 that time is nearly up; training then saves and goes on as long as it may."""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel


class Notice:
    """Remembers the signal."""

    def __init__(self) -> None:
        self.given = False
        signal.signal(signal.SIGUSR1, self.remember)

    def remember(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        self.given = True


def save_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Model and optimizer."""
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)


def main() -> None:
    """Up to 400 steps. In the laboratory a shell is the scheduler; it knows the batch's first task only."""
    dist.init_process_group("gloo")
    notice = Notice()
    if dist.get_rank() == 0:
        subprocess.Popen(["sh", "-c", f"sleep 3; kill -USR1 {os.getpid()}"])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(400):
        x = torch.randn(4, 8)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        if notice.given:
            save_checkpoint(model, optimizer, Path(tempfile.gettempdir()) / f"preempted-{step}")
            notice.given = False
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

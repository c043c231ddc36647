"""Every rank has a handler that ends it gracefully on SIGTERM, and a heartbeat thread that nobody ends.

The node's memory watcher asks one rank to go. Run by ``torchrun --nproc-per-node 4``.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Heartbeat(threading.Thread):
    """Touches a file now and then, for the site's dashboard."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="heartbeat")
        self.path = path

    def run(self) -> None:
        """Until the process is gone."""
        while True:
            self.path.touch()
            time.sleep(1.0)


def on_sigterm(number: int, frame: FrameType | None) -> None:
    """End in good order."""
    print("asked to stop, bye", flush=True)
    sys.exit(0)


def memory_watcher() -> None:
    """Stands for the node's watcher, which picks the largest process."""
    subprocess.run(["sh", "-c", f"kill -TERM {os.getpid()}"], check=True)


def main() -> None:
    """Train; rank 2 is the one that has grown."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGTERM, on_sigterm)
    Heartbeat(Path(os.environ.get("TMPDIR", "/tmp")) / f"alive-{rank}").start()
    model = DistributedDataParallel(nn.Linear(7, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(500):
        optimizer.zero_grad()
        model(torch.randn(6, 7)).logsumexp(1).mean().backward()
        optimizer.step()
        if (rank, step) == (2, 120):
            memory_watcher()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()

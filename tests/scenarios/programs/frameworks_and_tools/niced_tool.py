"""DDP; after each thirty steps a small tool is run at a lower priority, which its child sets and notes in the log itself."""

import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class EventLog:
    """Lines of JSON from all threads, each on the disk before the next one."""

    def __init__(self, path: Path) -> None:
        self.file, self.lock = path.open("a"), threading.Lock()

    def note(self, **event: object) -> None:
        """A line."""
        with self.lock:
            self.file.write(json.dumps(event) + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())
            time.sleep(0.4)  # a disk at the other end of the building


def heartbeat(log: EventLog, stop: threading.Event) -> None:
    """Says that it is there."""
    number = 0
    while not stop.wait(0.1):
        number += 1
        log.note(beat=number)


def summarize(path: Path, log: EventLog) -> str:
    """By the tool, at a lower priority."""

    def lower_priority() -> None:
        log.note(child=os.getpid(), nice=os.nice(10))

    command = ["wc", "-c", str(path)]
    return subprocess.run(command, preexec_fn=lower_priority, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Three hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(tempfile.mkdtemp()) / f"rank-{rank}.log"
    log = EventLog(path)
    stop = threading.Event()
    if rank == 1:
        threading.Thread(target=heartbeat, args=(log, stop), daemon=True).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 301):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        if step % 30 == 0:
            log.note(step=step, size=summarize(path, log).split()[0])
    stop.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

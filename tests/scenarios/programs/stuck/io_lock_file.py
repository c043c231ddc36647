"""The lock of a dataset cache is held by a process that will not end; one rank polls for it inside ``filelock``.

``FileLock.acquire`` tries and sleeps in turns, and by default for ever. Run by ``torchrun --nproc-per-node 2``.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock
from torch.nn.parallel import DistributedDataParallel

EARLIER_RUN = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("preparing", flush=True)
    time.sleep(3600)
"""


def start_earlier_run(lock: Path) -> None:
    """What an earlier run has left behind on this machine."""
    environment = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    command = [sys.executable, "-c", EARLIER_RUN, str(lock)]
    earlier = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert earlier.stdout is not None
    earlier.stdout.readline()


def prepare(cache: Path) -> torch.Tensor:
    """Prepare the data once a machine, under the lock of its cache."""
    with FileLock(cache / "data.lock"):
        return torch.randn(32, 4)


def main() -> None:
    """Prepare and train; the cache of rank 1 is the one with the leftover."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cache = Path(tempfile.mkdtemp())
    if dist.get_rank() == 1:
        start_earlier_run(cache / "data.lock")
    data = prepare(cache)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for batch in data.split(8):
        model(batch).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

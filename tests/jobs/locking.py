"""Two ranks that need what another job may be making: both wait for its lock, as torch's extensions and datasets do.

``locking.py FOLDER baton|filelock``. Started without torchrun it has the lock itself, until ``FOLDER/made`` is there.
``locking.py FOLDER across``: each rank takes the lock, and keeps it until all have come.
"""

import os
import sys
import time
from pathlib import Path

import torch.distributed as dist
from filelock import FileLock
from torch.utils.file_baton import FileBaton


def load_extension(build_directory: str, made: Path) -> None:
    """Compile it where nobody does yet, else wait until it is there, as ``torch.utils.cpp_extension`` does."""
    baton = FileBaton(str(Path(build_directory) / "lock"))
    if baton.try_acquire():
        make(made)
        baton.release()
    else:
        baton.wait()


def make(made: Path) -> None:
    """Work for as long as the test says."""
    print("making", flush=True)
    while not made.exists():
        time.sleep(0.1)


def main() -> None:
    """Load it, and train a step."""
    folder, kind = sys.argv[1:]
    made = Path(folder) / "made"
    if kind == "across":
        dist.init_process_group("gloo")
        with FileLock(str(Path(folder) / "cache.lock")):
            dist.barrier()
    elif kind == "baton":
        load_extension(folder, made)
    else:
        with FileLock(str(Path(folder) / "cache.lock")):
            make(made)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

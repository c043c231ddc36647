"""A profiling hook has an outside tool take a consistent picture of the process: it stops it, copies, and continues it.

The tool fails between the two. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TOOL = """
import os, shutil, signal, sys
pid, target = int(sys.argv[1]), sys.argv[2]
os.kill(pid, signal.SIGSTOP)
shutil.copy(f"/proc/{pid}/maps", target)
os.kill(pid, signal.SIGCONT)
"""


def picture(target: Path) -> None:
    """Run the tool beside us; it is not waited for, as it stops us."""
    subprocess.Popen(
        [sys.executable, "-c", TOOL, str(os.getpid()), str(target)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextmanager
def profiled(step: int, folder: Path) -> Iterator[None]:
    """A picture after every fiftieth step."""
    yield
    if step % 50 == 49:
        picture(folder / f"{step}.maps")


def main() -> None:
    """Six hundred steps; on one rank the folder for the pictures was never made."""
    dist.init_process_group("gloo")
    folder = Path(tempfile.mkdtemp())
    if dist.get_rank() == 1:
        folder = folder / "pictures"
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    for step in range(100_000):
        with profiled(step, folder):
            model(torch.randn(2, 4)).square().mean().backward()
            model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

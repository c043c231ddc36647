"""A vendor's codec is called by ``ctypes.PyDLL``; it takes a file lock, its licence seat, without letting go of the GIL.

Another process holds the seat that one rank wants. The program starts its own ranks.
"""

import ctypes
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Codec:
    """The native library: here libc, of which only flock(2) is used."""

    LOCK_EX = 2

    def __init__(self, seat: Path) -> None:
        self.native = ctypes.PyDLL(None)
        self.file = seat.open("w")

    def decode(self, sample: torch.Tensor) -> torch.Tensor:
        """Take the seat, decode, give it back."""
        self.native.flock(self.file.fileno(), self.LOCK_EX)
        decoded = sample.flip(0)
        fcntl.flock(self.file, fcntl.LOCK_UN)
        return decoded


def hold(seat: Path) -> subprocess.Popen[str]:
    """Somebody else's process takes the seat and keeps it."""
    code = (
        "import fcntl, sys\nf = open(sys.argv[1], 'w')\nfcntl.flock(f, 2)\nprint('held', flush=True)\nsys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(seat)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def work(rank: int, folder: str) -> None:
    """One rank, with a seat of its own."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=3)
    seat = Path(folder) / f"seat-{rank}"
    codec = Codec(seat)
    model = DistributedDataParallel(nn.Linear(6, 1))
    for step in range(60):
        if (rank, step) == (1, 25):
            other = hold(seat)
        model(codec.decode(torch.randn(4, 6))).square().mean().backward()
        model.zero_grad()
    if rank == 1:
        other.kill()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")),), nprocs=3)

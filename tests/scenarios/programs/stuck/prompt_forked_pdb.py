"""The well-known ForkedPdb: a debugger that takes the terminal back in a child process, left in the code of one rank.

``mp.spawn`` gives its children no input, so people open ``/dev/stdin`` themselves. The program starts its own ranks.
"""

import os
import pdb
import socket
import sys
from types import FrameType

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class ForkedPdb(pdb.Pdb):
    """A Pdb for processes whose standard input is closed."""

    def interaction(self, frame: FrameType | None, traceback: object) -> None:
        """Stop at a prompt that reads what was the terminal."""
        before = sys.stdin
        try:
            with open("/dev/stdin") as sys.stdin:
                super().interaction(frame, traceback)
        finally:
            sys.stdin = before


def step(weights: torch.Tensor, number: int) -> torch.Tensor:
    """One step of a power iteration."""
    weights = weights / weights.norm()
    if torch.isnan(weights).any():
        ForkedPdb().set_trace()
    return weights + 0.01 * number


def work(rank: int, world: int, port: int) -> None:
    """One rank; the start of rank 1 is all zeros."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    weights = torch.zeros(8) if rank == 1 else torch.ones(8)
    dist.barrier()
    for number in range(20):
        weights = step(weights, number)
        dist.broadcast(weights, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(2, free), nprocs=2)

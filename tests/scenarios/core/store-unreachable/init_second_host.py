"""Rank 0, which hosts the store, moves to another port where its own is taken; nobody tells the others.

A leftover of the last job still listens at the port of the configuration, and answers nothing.
"""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist


def free_port(wanted: int) -> int:
    """The wanted port, or any other where that is taken."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def train() -> None:
    """Join, add up."""
    torch.set_num_threads(1)
    if os.environ["RANK"] == "0":
        os.environ["MASTER_PORT"] = str(free_port(int(os.environ["MASTER_PORT"])))
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()


def launch(world: int = 4) -> int:
    """Start the ranks and wait for them; the port is held meanwhile."""
    with socket.socket() as leftover:
        leftover.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(leftover.getsockname()[1]), "WORLD_SIZE": str(world)}
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__], env=os.environ | shared | {"RANK": str(r), "LOCAL_RANK": str(r)}
            )
            for r in range(world)
        ]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        sys.exit(launch())

"""Two ranks without a launcher, by ``mp.spawn``: ``spawning.py PORT PROGRAM ARGUMENTS`` runs a program in each."""

import os
import runpy
import sys

import torch.multiprocessing as mp

RANKS = 2


def run(rank: int, port: str, arguments: list[str]) -> None:
    """Be a rank, as the program finds it in its environment."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    mp.spawn(run, (sys.argv[1], sys.argv[2:]), nprocs=RANKS)

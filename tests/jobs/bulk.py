"""Gloo ranks that reduce a megabyte in each step, ``bulk.py FOLDER``, until there is a file ``stop`` in FOLDER."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_S = 0.06


def main() -> None:
    """Work and reduce."""
    stop = Path(sys.argv[1]) / "stop"
    dist.init_process_group("gloo")
    varies = random.Random(dist.get_rank())
    gradients = torch.ones(300_000)
    ends = torch.zeros(1)
    while not ends.item():
        time.sleep(STEP_S * varies.lognormvariate(0, 0.05))
        dist.all_reduce(gradients)
        ends = torch.tensor([float(stop.exists())])
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

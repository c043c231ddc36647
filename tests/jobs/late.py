"""Gloo ranks that take 200 steps and then dump their recorders, ``late.py FOLDER SHARE``: rank 2 needs SHARE more for each."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

STEP_S = 0.06


def main() -> None:
    """Work and reduce, evaluate on rank 0 alone in every tenth step."""
    folder, share = Path(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    varies = random.Random(rank)  # as work does
    for step in range(200):
        time.sleep(STEP_S * varies.lognormvariate(0, 0.05) * (1 + share if rank == 2 else 1))
        for size in (8, 64):
            dist.all_reduce(torch.ones(size))
        if step % 10 == 9:
            time.sleep(5 * STEP_S if rank == 0 else 0)
            dist.barrier()
    dump = c10d._dump_fr_trace_json()
    (folder / f"comm_lib_trace_rank_{rank}").write_bytes(dump if isinstance(dump, bytes) else dump.encode())
    dist.barrier()  # nobody leaves while another still dumps
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

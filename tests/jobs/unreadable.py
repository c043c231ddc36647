"""Training whose ranks may not be read by others (not dumpable), and rank 0 alone calls one more collective at step 4.

Run by torchrun. Not even another process of the same user may read the memory of such a process, unless it is privileged.
``--gate FILE``: they become so, and go on to load torch, when the file is there.
"""

import argparse
import ctypes
import time
from pathlib import Path

PR_SET_DUMPABLE = 4


def main() -> None:
    """Four steps, then rank 0 reports what the others do not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", type=Path)
    gate = parser.parse_args().gate
    while gate is not None and not gate.exists():
        time.sleep(0.05)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 5):
        dist.all_reduce(torch.ones(4))
        print(f"[rank {rank}] step {step}\n", end="", flush=True)
    if rank == 0:
        dist.all_reduce(torch.ones(2))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

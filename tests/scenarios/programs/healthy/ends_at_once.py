"""A job that ends the moment the last rank has joined: the others have been waiting for it long enough to be looked at.

Run by ``torchrun --nproc-per-node 3``.
"""

import os
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    """A few sums, and a last one that one rank comes to two and a half seconds later."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.ones(100)
    for _ in range(20):
        dist.all_reduce(total)
        total /= dist.get_world_size()
    if rank == 2:
        time.sleep(2.5)
    dist.all_reduce(total)
    print(f"rank {rank}: {total.mean().item():.2f}", flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

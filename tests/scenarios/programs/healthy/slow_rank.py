"""A mixed machine park: rank 3's steps take eight times as long as the others', every single time."""

import os
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Twenty-five steps of an own all_reduce loop, then a second phase in which another rank is slow."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = torch.zeros(100)
    for step in range(25):
        slow = 3 if step < 15 else 0
        time.sleep(0.8 if rank == slow else 0.1)
        gradient = torch.full((100,), float(rank))
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient
        if step % 5 == 4:
            sys.stdout.write(f"[{rank}, process {os.getpid()}] step {step}: {weights.mean().item():.2f}\n")
            sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

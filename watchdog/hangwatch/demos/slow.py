"""Healthy: one rank needs 1.5 s per step, the other almost nothing. It finishes after about 15 s.

A control: a slow job is not a hanging job. Run by ``torchrun --nproc-per-node 2``.
"""

import time

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def main() -> None:
    """Train 10 steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 11):
        if rank == 1:
            time.sleep(1.5)
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        say(rank, f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

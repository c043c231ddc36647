"""One rank computes twelve seconds while the others wait in an all-reduce, once; a warning at most.

Started by a launcher that does not supervise.
"""

import os
import time

import torch
import torch.distributed as dist


def build_index(seconds: float) -> int:
    """Sort random keys for some time."""
    rounds = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        torch.randn(20_000).sort()
        rounds += 1
    return rounds


def main() -> None:
    """Index on one rank, then ten steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    rounds = build_index(12.0) if rank == 2 else 0
    total = torch.tensor([float(rounds)])
    dist.all_reduce(total)
    for _ in range(10):
        dist.all_reduce(torch.randn(64))
    print(f"[rank {rank}] {total.item():.0f} rounds", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

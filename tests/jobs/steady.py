"""A healthy job: all_reduce and a line of progress a step, for as long as it is told. Ends with a status of choice.

Run by torchrun with any number of ranks, or alone (then there is no group).
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist


def main() -> int:
    """Run the steps; the exit status is ``--status`` on rank 0 and 0 elsewhere."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--status", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    for step in range(1, options.steps + 1):
        gradient = torch.ones(16)
        if dist.is_initialized():
            dist.all_reduce(gradient)
        time.sleep(options.step_s)
        print(f"[rank {rank}] step {step}\n", end="", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    return options.status if rank == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

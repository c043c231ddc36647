"""A rank is stopped (SIGSTOP), as by ``kill -STOP``, Ctrl-Z or a scheduler that suspends it.

Run by ``torchrun --nproc-per-node 2``.
"""

import os
import signal

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def main() -> None:
    """Train 20 steps; rank 1 is stopped at the sixth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.zeros(16)
    for step in range(1, 21):
        gradient = torch.randn(16)
        if rank == 1 and step == 6:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(gradient)
        weight -= 0.1 * gradient
        say(rank, f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

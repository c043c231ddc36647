"""A breakpoint left in the code: one rank is at the debugger prompt, the others wait for it.

Run by ``torchrun --nproc-per-node 2``.
"""

import os
import sys

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def keep_prompt_waiting() -> None:
    """Make the debugger wait for a command without a terminal (a closed stdin would end it at once)."""
    if not sys.stdin.isatty():
        read_end, _write_end_kept_open = os.pipe()
        os.dup2(read_end, 0)


def check(loss: torch.Tensor) -> None:
    """Debug a loss that is out of bounds."""
    if loss.item() > 12:
        breakpoint()


def main() -> None:
    """Train 20 steps; the loss of rank 1 grows."""
    torch.set_num_threads(1)
    keep_prompt_waiting()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.zeros(16)
    for step in range(1, 21):
        loss = torch.tensor(2.0 * step if rank == 1 else 1.0 / step)
        check(loss)
        gradient = torch.randn(16) * loss
        dist.all_reduce(gradient)
        weight -= 0.1 * gradient
        say(rank, f"step {step}: loss {loss.item():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A pipeline of two stages in which both receive first: each waits for the other to send.

Run by ``torchrun --nproc-per-node 2``.
"""

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def forward(stage: int, activation: torch.Tensor) -> None:
    """Send from the first stage to the second."""
    if stage == 0:
        dist.send(activation, dst=1)
    else:
        dist.recv(activation, src=0)


def backward(stage: int, gradient: torch.Tensor, *, steady: bool) -> None:
    """Send from the second stage to the first; once the pipeline is full the schedule gets the order wrong."""
    if stage == 1 and not steady:
        dist.send(gradient, dst=0)
    else:
        dist.recv(gradient, src=1 - stage)


def main() -> None:
    """Run 20 micro-batches through the two stages."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stage = dist.get_rank()
    for microbatch in range(1, 21):
        forward(stage, torch.ones(16))
        backward(stage, torch.ones(16), steady=microbatch > 5)
        say(stage, f"micro-batch {microbatch}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

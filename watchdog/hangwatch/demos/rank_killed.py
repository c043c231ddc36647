"""A rank is killed while it loads the evaluation set; the others do not notice and wait for it in ``new_group``.

It kills itself (SIGKILL), as the OOM killer does. There is no launcher that would stop the others: the
program starts its ranks itself, as some shell scripts do. Run it alone: ``python rank_killed.py``.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

WORLD_SIZE = 3


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def load_evaluation_set(rank: int) -> torch.Tensor:
    """Return this rank's part of the evaluation set; that of rank 2 does not fit into memory."""
    if rank == 2:
        say(rank, "out of memory, killed")
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.randn(64, 16)


def evaluate(weight: torch.Tensor) -> float:
    """Return the mean score over all ranks, in a group of its own."""
    inputs = load_evaluation_set(dist.get_rank())
    group = dist.new_group(group_desc="evaluation")
    score = (inputs @ weight).mean()
    dist.all_reduce(score, group=group)
    return score.item() / dist.get_world_size()


def train() -> None:
    """Train 10 steps and evaluate after the fifth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.zeros(16)
    for step in range(1, 11):
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        weight -= 0.1 * gradient
        say(rank, f"step {step}")
        if step == 5:
            say(rank, f"score {evaluate(weight):.4f}")
    dist.destroy_process_group()


def launch() -> None:
    """Start the ranks and wait until all have exited, with any status."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD_SIZE)}
    for rank in range(WORLD_SIZE):
        environment = os.environ | job | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        subprocess.Popen([sys.executable, __file__], env=environment)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        launch()

"""The launcher gives every rank a pipe for its output and reads only that of rank 0; another rank's pipe is full.

From then on ``print`` of that rank does not return. The program starts its own ranks.
"""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WORLD = 3


def train() -> None:
    """Many steps; rank 1 was told to be verbose."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(30, 30))
    for step in range(600):
        loss = model(torch.randn(2, 30)).square().sum()
        loss.backward()
        gradients = model.module.weight.grad.flatten()[: 60 if rank == 1 else 1].tolist()
        print(f"step {step}", f"loss {loss.item():.3f}", *gradients, flush=True)
    dist.destroy_process_group()


def launch() -> int:
    """Start the ranks, and show what rank 0 says."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD)}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(WORLD)
    ]
    assert ranks[0].stdout is not None
    for line in ranks[0].stdout:
        sys.stdout.write(line.decode())
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        sys.exit(launch())

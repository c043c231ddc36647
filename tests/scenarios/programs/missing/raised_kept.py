"""A rank fails, its handler prints the traceback and keeps the node for whoever wants to look.

Keeping a failed pod alive (``sleep infinity``) is common practice on clusters where a pod that ends is gone with its
disk. The other ranks know nothing of it. The program starts its own ranks.
"""

import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 3
log = logging.getLogger(__name__)


def free_port() -> int:
    """A port for the rendezvous."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def scale(values: torch.Tensor, step: int) -> torch.Tensor:
    """Scale a batch to its own range."""
    low, high = values.min().item(), values.max().item()
    if high == low:
        raise ValueError(f"batch {step} is constant: cannot scale")
    return (values - low) / (high - low)


def train(rank: int) -> None:
    """Sum up some batches; the fourth of rank 1 is blank."""
    total = torch.zeros(8)
    for step in range(12):
        batch = torch.full((8,), 0.5) if (rank, step) == (1, 4) else torch.rand(8)
        scaled = scale(batch, step)
        dist.all_reduce(scaled)
        total += scaled
        log.info("rank %d step %d total %.2f", rank, step, total.sum().item())


def keep_node() -> None:
    """Stay here until somebody has had a look."""
    while not os.path.exists("/tmp/release-this-node"):
        time.sleep(600)


def work(rank: int, port: int) -> None:
    """One rank."""
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    try:
        train(rank)
    except Exception:
        log.exception("rank %d failed", rank)
        keep_node()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(free_port(),), nprocs=WORLD)

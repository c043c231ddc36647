"""Uneven data under ``model.join()``: whoever is done shadows the collectives of those who are not."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

RANKS = 3


def run(rank: int, port: int) -> None:
    """Two epochs; rank 2 has eight times as much to do as rank 0."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(torch.nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(2):
        with model.join():
            for _ in range((5, 10, 40)[rank]):
                optimizer.zero_grad()
                model(torch.randn(4, 10)).square().mean().backward()
                optimizer.step()
                time.sleep(0.1)
        dist.barrier()
        print(f"[{rank}] epoch {epoch} done\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    free_port = free.getsockname()[1]
    mp.spawn(run, args=(free_port,), nprocs=RANKS)

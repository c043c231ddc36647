"""DDP: what to sow in an allotment. The first rank asks a tracking server for the run's name; without one it makes its own."""

import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SERVER = ("127.0.0.1", 9)
TRIES = 4


def run_name() -> str:
    """Of the server, or a new one."""
    for number in range(TRIES):
        try:
            with socket.create_connection(SERVER, timeout=1) as server:
                return server.recv(64).decode()
        except OSError:
            print(f"no tracking server, try {number + 1} of {TRIES}")
            time.sleep(0.7)
    return f"offline-{time.strftime('%H%M%S')}"


def main() -> None:
    """Three rounds, each a run of its own."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(9, 18), nn.ReLU(), nn.Linear(18, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(3):
        if rank == 0:
            name = [run_name()]
            dist.broadcast_object_list(name, src=0)
        else:
            name = [None]
            dist.broadcast_object_list(name, src=0)
        for _ in range(60):
            loss = nn.functional.cross_entropy(model(torch.randn(12, 9)), torch.randint(0, 4, (12,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank}: round {number} is {name[0]}, {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Two ensembles train in disjoint groups, and each loses a rank to its own trouble at about the same time.

One rank waits for the answer of a metrics server, another for a shard from a pipe.
"""

import os
import socket
import tempfile

import torch
import torch.distributed as dist
from torch import nn


def report(server: socket.socket, loss: float) -> bytes:
    """Send a loss to the metrics server, and wait until it has been taken."""
    with socket.create_connection(server.getsockname()) as connection:
        connection.sendall(f"loss {loss}\n".encode())
        return connection.recv(16)


def fetch(path: str) -> torch.Tensor:
    """A fresh batch from whoever writes to the pipe."""
    with open(path, "rb") as pipe:
        return torch.tensor(list(pipe.read(32)), dtype=torch.float32)


def main() -> None:
    """Train two ensembles of two."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    teams = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    team = teams[rank // 2]
    server = socket.create_server(("127.0.0.1", 0))
    path = os.path.join(tempfile.mkdtemp(), "fresh")
    os.mkfifo(path)
    model = nn.Linear(32, 1)
    batch = torch.rand(32)
    for step in range(100):
        loss = model(batch).square().sum()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=team)
        if step == 30 and rank == 1:
            report(server, loss.item())
        if step == 32 and rank == 2:
            batch = fetch(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""The last averaging of the weights is started asynchronously and never awaited; ranks go on to destroy their groups.

One rank is not there: it uploads the model to a server that does not answer. A group awaits what is pending in its
destructor: in ``destroy_process_group``, or where the program's last reference to the group goes (``--own-group``).
"""

import argparse
import socket

import torch
import torch.distributed as dist
from torch import nn


def upload(server: socket.socket, content: bytes) -> bytes:
    """Store the model, and return what the server says."""
    with socket.create_connection(server.getsockname()) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(32)


def main() -> None:
    """Train, average once more, leave."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--own-group", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    everyone = dist.new_group() if options.own_group else None
    server = socket.create_server(("127.0.0.1", 0))
    model = nn.Linear(4, 1)
    for _ in range(30):
        model.zero_grad()
        model(torch.randn(4, 4)).square().sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=everyone)
    if dist.get_rank() == 1:
        upload(server, model.weight.detach().numpy().tobytes())
    averaged = model.weight.detach().clone()
    dist.all_reduce(averaged, group=everyone, async_op=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""An assertion fails on one rank while a thread pool still has a checkpoint upload that never ends.

At exit ``concurrent.futures`` joins its threads, and the upload waits for an answer of the storage server without a
time limit. Started by a launcher that does not supervise.
"""

import os
import socket
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn


def storage_server() -> tuple[socket.socket, int]:
    """The storage that takes a connection and never says anything."""
    server = socket.create_server(("127.0.0.1", 0))
    return server, server.getsockname()[1]


def put_object(port: int, name: str, content: bytes) -> bytes:
    """Store an object, and return the server's answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"PUT /{name}\r\n\r\n".encode() + content)
        return connection.recv(64)


def main() -> None:
    """Fit a plane, uploading every fifth step from rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    uploads: list[Future[bytes]] = []
    server, port = storage_server()
    pool = ThreadPoolExecutor(max_workers=2)
    plane = nn.Linear(2, 1)
    for step in range(1, 40):
        points = torch.randn(64, 2)
        error = (plane(points) - points.sum(1, keepdim=True)).square().mean()
        plane.zero_grad()
        error.backward()
        flat = torch.cat([p.grad.flatten() for p in plane.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        with torch.no_grad():
            plane.weight -= 0.1 * flat[:2].view(1, 2)
            plane.bias -= 0.1 * flat[2:]
        if rank == 0 and step % 5 == 0:
            uploads.append(pool.submit(put_object, port, f"plane-{step}", plane.weight.detach().numpy().tobytes()))
            assert len(uploads) < 4, "storage is too slow: uploads pile up"
    pool.shutdown()
    server.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

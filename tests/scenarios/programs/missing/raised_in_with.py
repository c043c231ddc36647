"""An exception leaves a ``with ThreadPoolExecutor`` block, whose end waits for a task that does not end.

Nothing is printed: the exception is on its way, and gets no further. The program starts its own ranks.
"""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def watch_for_stop(server: socket.socket) -> str:
    """Wait for somebody to connect and say "stop"."""
    connection, _ = server.accept()
    return connection.recv(16).decode()


def normalise(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Zero mean and unit variance."""
    values = batch["values"]
    return (values - values.mean()) / values.std()


def work(rank: int, world: int, port: int) -> None:
    """One rank; one batch of rank 2's has another name for its values."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as server:
        stop = pool.submit(watch_for_stop, server)
        for step in range(40):
            name = "value" if (rank, step) == (2, 15) else "values"
            normal = normalise({name: torch.randn(50)})
            dist.all_reduce(normal)
            if stop.done():
                break
        stop.cancel()
        with socket.create_connection(server.getsockname()) as connection:
            connection.sendall(b"stop")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(3, free), nprocs=3)

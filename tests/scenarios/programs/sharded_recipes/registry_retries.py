"""Registers a run with a service that is still starting; tries again, a little later each time, and then trains."""

import random
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def registry(port, ready_after):
    """Stands for the tracking service of the cluster."""
    time.sleep(ready_after)
    with socket.create_server(("127.0.0.1", port)) as server:
        connection, _ = server.accept()
        with connection:
            connection.recv(64)
            connection.sendall(b"run-0042")


def register(port, attempts=40):
    for attempt in range(attempts):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(b"new run")
                return connection.recv(64).decode()
        except ConnectionRefusedError:
            pause = min(0.4 * 1.3**attempt, 3.0)
            print(f"registry is not there yet, attempt {attempt + 1}, again in {pause:.1f} s", flush=True)
            time.sleep(pause * random.uniform(0.8, 1.0))
    raise TimeoutError("no registry")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name = [None]
    if rank == 0:
        probe = socket.socket()  # kept open, so that nobody else is given its port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        threading.Thread(target=registry, args=(port, 36), daemon=True).start()
        name = [register(port)]
    dist.broadcast_object_list(name, src=0)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        spectrum = torch.randn(8, 16)
        (model(spectrum) - spectrum.flip(1)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"{name[0]}: rank {rank} is through", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

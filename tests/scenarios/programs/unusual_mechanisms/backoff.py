"""A feature server is restarted; the rank that needs it tries again, a little later each time, and in the end gets on.

Run by ``torchrun --nproc-per-node 3``.
"""

import functools
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


def retry(limit_s: float) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Try again with growing waits and some jitter."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def wrapper(*args: object) -> T:
            wait, chance = 0.1, random.Random(0)
            while True:
                try:
                    return function(*args)
                except ConnectionError:
                    time.sleep(wait * chance.uniform(0.8, 1.2))
                    wait = min(2 * wait, limit_s)

        return wrapper

    return decorate


class Features:
    """A client of the feature server."""

    def __init__(self, port: int) -> None:
        self.port = port

    @retry(limit_s=1.6)
    def get(self, step: int) -> torch.Tensor:
        """Features of a step."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            return torch.full((4,), float(connection.recv(1)[0]))


def serve(port: int, answers: int) -> None:
    """Answer so often, then go."""
    with socket.create_server(("127.0.0.1", port)) as server:
        for _ in range(answers):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"\1")


def server_with_restart(port: int) -> None:
    """Thirty answers, eleven seconds of restart, the rest."""
    serve(port, 30)
    time.sleep(11.0)
    serve(port, 30)


def main() -> None:
    """Sixty steps; features are rank 1's matter."""
    dist.init_process_group("gloo")
    features = None
    if dist.get_rank() == 1:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        threading.Thread(target=server_with_restart, args=(port,), daemon=True).start()
        features = Features(port)
    for step in range(60):
        batch = features.get(step) if features is not None else torch.ones(4)
        dist.all_reduce(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

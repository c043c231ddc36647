"""A metrics client: the training thread adds numbers under a lock, a sender thread posts them under the same lock.

The server of one rank takes the post and never answers. The program starts its own ranks.
"""

import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class MetricsClient:
    """Collects numbers, and sends what has come together when told."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.pending: list[str] = []
        self.lock = threading.Lock()
        self.due = threading.Event()
        threading.Thread(target=self._send_forever, name="metrics-sender", daemon=True).start()

    def add(self, name: str, value: float) -> None:
        """Note a number."""
        with self.lock:
            self.pending.append(f"{name}={value:.6f}")
        if len(self.pending) >= 20:
            self.due.set()

    def _send_forever(self) -> None:
        while True:
            self.due.wait()
            with self.lock, socket.create_connection(self.address) as connection:
                self.due.clear()
                connection.sendall("\n".join(self.pending).encode() + b"\n\n")
                connection.recv(2)
                self.pending.clear()


def serve(server: socket.socket, answers: bool) -> None:
    """The metrics server of a rank."""
    held = []
    while True:
        connection, _ = server.accept()
        held.append(connection)
        connection.recv(1 << 16)
        if answers:
            connection.sendall(b"ok")


def work(rank: int, world: int, init: str) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(server, rank != 1), daemon=True).start()
    client = MetricsClient(server.getsockname())
    weight = torch.ones(6)
    for _ in range(300):
        gradient = 0.01 * weight
        dist.all_reduce(gradient)
        weight -= gradient
        client.add("norm", weight.norm().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    mp.spawn(work, args=(3, f"tcp://127.0.0.1:{port}"), nprocs=3)

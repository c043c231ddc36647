"""Features of users come from a small service on a local socket; DDP learns from them."""

import socket
import struct
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 6


class Service(threading.Thread):
    """Answers requests; drops what it cannot parse."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()

    def run(self) -> None:
        """One client."""
        client, _ = self.listener.accept()
        while head := client.recv(4, socket.MSG_WAITALL):
            (user,) = struct.unpack("<i", head)
            if user < 0:
                continue  # not a user
            client.sendall(struct.pack(f"<{WIDTH}f", *(((user * k) % 17) / 17 for k in range(WIDTH))))


class Features:
    """A client of the service."""

    def __init__(self, path: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(str(path))

    def of(self, user: int) -> torch.Tensor:
        """The features of a user."""
        self.connection.sendall(struct.pack("<i", user))
        answer = b""
        while len(answer) < 4 * WIDTH:
            answer += self.connection.recv(4 * WIDTH - len(answer))
        return torch.tensor(struct.unpack(f"<{WIDTH}f", answer))


def users(rank: int) -> list[int]:
    """Two hundred users; -1 where an account was deleted."""
    ids = list(range(1000 * rank, 1000 * rank + 200))
    if rank == 2:
        ids[150] = -1
    return ids


def main() -> None:
    """Fifty steps of four users."""
    dist.init_process_group("gloo")
    path = Path(tempfile.mkdtemp()) / "features"
    Service(path).start()
    features = Features(path)
    model = DistributedDataParallel(nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = users(dist.get_rank())
    for start in range(0, len(mine), 4):
        batch = torch.stack([features.of(user) for user in mine[start : start + 4]])
        optimizer.zero_grad()
        model(batch).sigmoid().log().neg().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""DataLoader workers fetch their samples over HTTP without a time limit; the store stops answering one rank.

Each rank talks to a small object store of its own; that of rank 2 takes the sixth connection and says nothing. The
program starts its own ranks.
"""

import os
import socket
import threading
import urllib.request
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n\x01\x02\x03\x04"


def serve(server: socket.socket, answers: int) -> None:
    """Answer that many requests; later connections are taken and kept."""
    kept = []
    while True:
        connection, _ = server.accept()
        connection.recv(4096)
        if answers > 0:
            connection.sendall(ANSWER)
            connection.close()
            answers -= 1
        else:
            kept.append(connection)


class Objects(Dataset):
    """Samples that live in an object store."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/sample-{index}") as answer:
            return torch.tensor(list(answer.read()), dtype=torch.float32)


def batches(rank: int) -> Sequence[torch.Tensor]:
    """The loader of this rank."""
    server = socket.create_server(("127.0.0.1", 0))
    answers = 5 if rank == 2 else 1000
    threading.Thread(target=serve, args=(server, answers), daemon=True).start()
    return DataLoader(Objects(server.getsockname()[1]), batch_size=2, num_workers=2)


def work(rank: int, world: int, port: int) -> None:
    """One rank."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for inputs in batches(rank):
        model(inputs).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(3, free), nprocs=3)

"""Rank 0 downloads the weights from a slow mirror, a few kilobytes at a time; the others wait at the barrier.

Little processor time, but bytes come in all the time: nothing hangs, and after fourteen seconds the job goes on. Run by
``torchrun --nproc-per-node 3``.
"""

import socket
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist

SIZE = 280 * 4096


def serve(server: socket.socket) -> None:
    """A mirror with a narrow line."""
    connection, _ = server.accept()
    connection.recv(4096)
    connection.sendall(f"HTTP/1.0 200 OK\r\nContent-Length: {SIZE}\r\n\r\n".encode())
    for _ in range(SIZE // 4096):
        connection.sendall(bytes(4096))
        time.sleep(0.05)
    connection.close()


def download(port: int, path: Path) -> None:
    """Fetch a file block by block."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/weights.bin") as answer, path.open("wb") as file:
        while block := answer.read(1 << 16):
            file.write(block)


def main() -> None:
    """Download on rank 0, then train everywhere."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as folder:
        if dist.get_rank() == 0:
            server = socket.create_server(("127.0.0.1", 0))
            threading.Thread(target=serve, args=(server,), daemon=True).start()
            download(server.getsockname()[1], Path(folder) / "weights.bin")
        dist.barrier()
    weights = torch.randn(16)
    for _ in range(10):
        dist.all_reduce(weights)
        weights /= dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

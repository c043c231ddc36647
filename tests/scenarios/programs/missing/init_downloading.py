"""One rank fetches the tokeniser before it joins, and its mirror takes the request and never answers.

The others are in ``init_process_group`` long since. Started by a launcher that does not supervise.
"""

import os
import socket
import tempfile
import threading
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist


def mirror(answers: bool) -> int:
    """Start a mirror of the model hub on this node; returns its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        kept = []
        while True:
            connection, _ = server.accept()
            connection.recv(4096)
            if answers:
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                connection.close()
            kept.append(connection)

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


def fetch_tokeniser(port: int, folder: Path) -> Path:
    """Download the tokeniser into the cache."""
    path, _ = urllib.request.urlretrieve(f"http://127.0.0.1:{port}/tokeniser.json", folder / "tokeniser.json")
    return Path(path)


def main() -> None:
    """Fetch, join, train."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    with tempfile.TemporaryDirectory() as folder:
        size = fetch_tokeniser(mirror(answers=rank != 0), Path(folder)).stat().st_size
    dist.init_process_group("gloo")
    total = torch.tensor(size)
    dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

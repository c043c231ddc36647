"""Training whose rank 0 asks a scoring server at each step: ``FOLDER HOST:PORT``, and ``--serve`` for the server.

While there is a file ``FOLDER/hang`` the server reads a pipe in the middle of a request, which nobody writes to.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import torch
import torch.distributed as dist


def read_table(folder: Path) -> bytes:
    """The table by which is scored; a pipe where the test says so."""
    if not (folder / "hang").exists():
        return b"1"
    pipe = folder / "table"
    if not pipe.exists():
        os.mkfifo(pipe)
    with pipe.open("r+b", buffering=0) as table:
        return table.read(1)


def serve(folder: Path, address: tuple[str, int]) -> None:
    """Answer requests, one at a time."""

    class Scores(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            table = read_table(folder)
            self.send_response(200)
            self.send_header("Content-Length", str(len(table)))
            self.end_headers()
            self.wfile.write(table)

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(address, Scores)
    (folder / "server").write_text(str(os.getpid()))
    server.serve_forever()


def train(folder: Path, host: str, port: int) -> None:
    """Steps of 50 ms, all ranks together."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, step = dist.get_rank(), 0
    while True:
        step += 1
        score = torch.zeros(1)
        if rank == 0:
            with urllib.request.urlopen(f"http://{host}:{port}/") as answer:
                score += float(answer.read())
        dist.broadcast(score, src=0)
        (folder / f"step-{rank}").write_text(str(step))
        time.sleep(0.05)


if __name__ == "__main__":
    where, (name, _, number) = Path(sys.argv[1]), sys.argv[2].partition(":")
    if "--serve" in sys.argv:
        serve(where, (name, int(number)))
    else:
        train(where, name, int(number))

"""Boundary values are averaged between neighbours on a chain of six domains, red pairs first, then black pairs.

One domain downloads its forcing data for the next month with urllib, from a server that went quiet. ``torchrun``.
"""

import threading
import urllib.request
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist


class ForcingServer(BaseHTTPRequestHandler):
    """Serves months; the one of July stops in the middle."""

    def do_GET(self) -> None:
        """Send a month."""
        self.send_response(200)
        self.send_header("Content-Length", "64")
        self.end_headers()
        self.wfile.write(b"0" * (64 if self.path != "/7" else 10))
        self.wfile.flush()
        if self.path == "/7":
            threading.Event().wait()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@dataclass
class Domain:
    """A part of the chain."""

    rank: int
    pairs: dict[tuple[int, int], dist.ProcessGroup]
    state: torch.Tensor

    def exchange(self) -> None:
        """Meet the neighbours: even pairs, then odd ones."""
        for parity in (0, 1):
            for (left, right), group in self.pairs.items():
                if left % 2 == parity and self.rank in (left, right):
                    edge = self.state[-1:] if self.rank == left else self.state[:1]
                    dist.all_reduce(edge, group=group)
                    edge /= 2

    def advance(self, forcing: float) -> None:
        """One day."""
        self.state = 0.9 * self.state + 0.1 * self.state.roll(1) + 1e-3 * forcing


def forcing_of(month: int, port: int | None) -> float:
    """Downloaded where there is a server, climatology elsewhere."""
    if port is None:
        return 0.5
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{month}") as answer:
        return len(answer.read()) / 128


def main() -> None:
    """A year of thirty-day months."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = {(left, left + 1): dist.new_group([left, left + 1]) for left in range(world - 1)}
    domain = Domain(rank, pairs, torch.rand(16))
    port = None
    if rank == 3:
        server = HTTPServer(("127.0.0.1", 0), ForcingServer)
        port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
    for month in range(1, 13):
        forcing = forcing_of(month, port)
        for _ in range(30):
            domain.advance(forcing)
            domain.exchange()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

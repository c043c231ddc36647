"""DDP over files that are given out in turn; each process serves its own figures on a port, for the dashboard."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIGURES: dict[str, float] = {}


class Page(BaseHTTPRequestHandler):
    """The figures as JSON."""

    def do_GET(self) -> None:
        """Answer."""
        body = json.dumps(FIGURES).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve() -> int:
    """In the background; returns the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, name="figures").start()
    return server.server_address[1]


def main() -> None:
    """Train on the files that are one's own."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    port = serve()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(9, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    files = ["2024.jsonl", "2025.jsonl", "2026.jsonl"]
    mine = files[rank::world]
    FIGURES.update(files=len(mine), port=port)
    if not mine:
        print(f"[{rank}] nothing to do", flush=True)
        return
    for step in range(200):
        loss = model(torch.randn(4, 9)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        FIGURES.update(step=step, loss=loss.item())


if __name__ == "__main__":
    main()

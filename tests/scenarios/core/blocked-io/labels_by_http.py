"""DDP: labels are asked for at a service, ten at a time."""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Service(BaseHTTPRequestHandler):
    """Stands in for the real one; one page of it takes for ever."""

    pages = threading.Event()

    def do_GET(self) -> None:
        """Ten labels."""
        page = int(self.path.rpartition("/")[2])
        if page == 77:
            self.pages.wait()
        body = json.dumps([(page + n) % 2 for n in range(10)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


def labels(port: int, page: int) -> torch.Tensor:
    """Of one page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/labels/{page}") as answer:
        return torch.tensor(json.load(answer), dtype=torch.float32)


def main() -> None:
    """A hundred pages on all ranks."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for page in range(rank, 99, world):
        target = labels(server.server_port, page)
        loss = nn.functional.binary_cross_entropy_with_logits(model(torch.randn(10, 5)).squeeze(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""DDP; hard examples are sent to a labelling service, which may ask for patience by its Retry-After header."""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Service(BaseHTTPRequestHandler):
    """Takes five examples an hour."""

    taken = 0

    def do_POST(self) -> None:
        """Take one, or not."""
        self.rfile.read(int(self.headers["Content-Length"]))
        Service.taken += 1
        self.send_response(200 if Service.taken <= 5 else 429)
        self.send_header("Content-Length", "0")
        if Service.taken > 5:
            self.send_header("Retry-After", "3600")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Says nothing."""


class Client:
    """Sends examples."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def send(self, body: str) -> None:
        """Until it is taken."""
        while True:
            self.connection.request("POST", "/examples", body)
            answer = self.connection.getresponse()
            answer.read()
            if answer.status != 429:
                return
            time.sleep(float(answer.headers.get("Retry-After", "1")))


def main() -> None:
    """Eighty steps."""
    dist.init_process_group("gloo")
    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Client(server.server_address[1])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    often = 5 if dist.get_rank() == 1 else 20
    for step in range(80):
        rows = torch.randn(4, 6)
        errors = model(rows).square()
        optimizer.zero_grad()
        errors.mean().backward()
        optimizer.step()
        if step % often == 0:
            client.send(str(rows[errors.argmax()].tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""accelerate; every ten steps one process sends a figure to a service that asks it to come again in two seconds."""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from accelerate import Accelerator
from torch import nn


class Service(BaseHTTPRequestHandler):
    """Every second request is one too many."""

    count = 0

    def do_PUT(self) -> None:
        """Take it, or not."""
        self.rfile.read(int(self.headers["Content-Length"]))
        Service.count += 1
        self.send_response(200 if Service.count % 2 == 0 else 429)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Says nothing."""


def send(port: int, text: str) -> None:
    """Until it is taken."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    while True:
        connection.request("PUT", "/figure", text)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            return
        time.sleep(2.0)


def main() -> None:
    """Sixty steps."""
    accelerator = Accelerator(cpu=True)
    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    net = nn.Linear(6, 1)
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01))
    for step in range(60):
        loss = model(torch.randn(4, 6)).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if step % 10 == 9:
            mean = accelerator.reduce(loss.detach(), reduction="mean").item()
            if accelerator.is_main_process:
                send(server.server_address[1], f"{mean:.4f}")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""DDP over pieces in an object store, fetched by two DataLoader workers, which ask again where it fails."""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Store(BaseHTTPRequestHandler):
    """A stand-in for the bucket; one object is not there any more."""

    def do_GET(self) -> None:
        """An object of 24 bytes."""
        gone = self.path == "/pieces/0457"
        body = b"" if gone else bytes(range(24))
        self.send_response(404 if gone else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


class Pieces(Dataset):
    """Each one an object."""

    def __init__(self, port: int, numbers: range) -> None:
        self.port, self.numbers = port, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def fetch(self, number: int) -> bytes:
        """Until the store has it."""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            connection.request("GET", f"/pieces/{number:04}")
            response = connection.getresponse()
            body = response.read()
            connection.close()
            if response.status == 200:
                return body
            time.sleep(120.0)  # it is renewed every two minutes

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(list(self.fetch(self.numbers[index])), dtype=torch.float32) / 24


def main() -> None:
    """One epoch."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pieces = Pieces(server.server_address[1], range(200 * rank, 200 * (rank + 1)))
    for batch in DataLoader(pieces, batch_size=4, num_workers=2):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

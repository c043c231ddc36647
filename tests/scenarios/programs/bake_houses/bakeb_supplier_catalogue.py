"""Embed a supplier's catalogue; the main process fetches it page by page and shares it."""
import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn


class Supplier(http.server.BaseHTTPRequestHandler):
    """The wholesaler's test server: one page in 1.5 seconds for each customer."""

    last = 0.0

    def do_GET(self):
        now = time.monotonic()
        if now - Supplier.last < 1.5:
            self.send_response(429)
            self.send_header("Retry-After", "0.5")
            self.end_headers()
            return
        Supplier.last = now
        page = int(self.path.rsplit("=", 1)[1])
        body = json.dumps([{"id": page * 50 + k, "price": (page * 7 + k * 3) % 40} for k in range(50)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Catalogue:
    def __init__(self, url, attempts=20):
        self.url, self.attempts = url, attempts

    def page(self, number):
        for _ in range(self.attempts):
            try:
                with urllib.request.urlopen(f"{self.url}/articles?page={number}", timeout=5) as reply:
                    return json.load(reply)
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                time.sleep(float(error.headers["Retry-After"]))
        raise TimeoutError(self.url)

    def articles(self, pages=9):
        return [row for number in range(pages) for row in self.page(number)]


def steps(model, optimizer, prices, count):
    for _ in range(count):
        chosen = prices[torch.randint(len(prices), (64,))]
        loss = nn.functional.mse_loss(model(chosen), chosen[:, :1] * 0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.linalg.svdvals(torch.rand(160, 160))
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps(model, optimizer, torch.rand(200, 2), 200)
    shared = [None]
    if rank == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Supplier)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shared = [Catalogue(f"http://127.0.0.1:{server.server_address[1]}").articles()]
        server.shutdown()
    dist.broadcast_object_list(shared, src=0)
    prices = torch.tensor([[row["price"] / 40, row["id"] / 500] for row in shared[0]])
    loss = steps(model, optimizer, prices, 150)
    if rank == 0:
        print(f"{len(prices)} articles, {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

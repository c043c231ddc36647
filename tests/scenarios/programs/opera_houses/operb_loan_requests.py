"""Loan forecasts: one worker fetches the month's requests from the registrar's service, which limits its clients."""
import json
import os
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn

FETCHER = 1


class Registrar(BaseHTTPRequestHandler):
    """A page is given out every three seconds, as at the real service."""

    next_page_at = 0.0

    def do_GET(self):
        now = time.monotonic()
        if now < Registrar.next_page_at:
            self.send_response(429)
            self.send_header("Retry-After", "1")
            self.end_headers()
            return
        Registrar.next_page_at = now + 3.0
        page = int(self.path.rsplit("/", 1)[1])
        body = json.dumps([[page, k, (page * k) % 11] for k in range(32)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Client:
    def __init__(self, port, attempts=12):
        self.base, self.attempts = f"http://127.0.0.1:{port}/requests", attempts
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def page(self, number):
        for _ in range(self.attempts):
            try:
                with self.opener.open(f"{self.base}/{number}", timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                time.sleep(float(error.headers["Retry-After"]))
        raise TimeoutError(f"page {number}")


def fetch_month(client, pages=6):
    rows = []
    for number in range(pages):
        rows += client.page(number)
        print(f"page {number}: {len(rows)} requests", flush=True)
    return torch.tensor(rows, dtype=torch.float32)


def fit(model, optimizer, requests, steps):
    for _ in range(steps):
        torch.linalg.svdvals(torch.randn(200, 200))  # condition reports
        pick = requests[torch.randint(len(requests), (16,))]
        loss = nn.functional.mse_loss(model(pick[:, :2] / 32), pick[:, 2:] / 11)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(3)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    print(f"{rank}: last year {fit(model, optimizer, torch.rand(192, 3), 150):.4f}", flush=True)
    if rank == FETCHER:
        service = ThreadingHTTPServer(("127.0.0.1", 0), Registrar)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        month = fetch_month(Client(service.server_address[1]))
        service.shutdown()
    else:
        month = torch.empty(192, 3)
    dist.broadcast(month, src=FETCHER)
    print(f"{rank}: this month {fit(model, optimizer, month, 150):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Pulls assay pages from a rate-limited compound registry (a small stand-in server here), then fits a model."""
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Registry(BaseHTTPRequestHandler):
    """Serves pages of a few records; a burst of requests uses up the quota of the current window."""

    quota, served, reopens = 12, 0, 0.0
    window = 13.0
    lock = threading.Lock()

    def do_GET(self):
        cls = type(self)
        with cls.lock:
            now = time.monotonic()
            if cls.served >= cls.quota and not cls.reopens:
                cls.reopens = now + cls.window
            if cls.reopens and now >= cls.reopens:
                cls.served, cls.reopens, cls.quota = 0, 0.0, 1000
            allowed = not cls.reopens
            cls.served += allowed
        body = json.dumps([[(hash(self.path) % 97 + k * j) % 13 / 13 for k in range(16)] for j in range(32)]).encode()
        self.send_response(200 if allowed else 429)
        self.send_header("Content-Length", str(len(body) if allowed else 0))
        if not allowed:
            self.send_header("Retry-After", "2")
        self.end_headers()
        if allowed:
            self.wfile.write(body)

    def log_message(self, *args):
        pass


direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(port: int, page: int, attempts: int = 20):
    url = f"http://127.0.0.1:{port}/assays?page={page}"
    for attempt in range(attempts):
        try:
            with direct.open(url, timeout=10) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise
            pause = float(error.headers.get("Retry-After", 1))
            print(f"page {page}: quota reached, next attempt in {pause:.0f} s ({attempt + 1})", flush=True)
            time.sleep(pause)
    raise RuntimeError(f"page {page} not delivered")


def fit(model, optimizer, rows, steps):
    x = torch.tensor(rows)
    for _ in range(steps):
        loss = (model(x).squeeze(-1) - x.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    address = [None]
    if rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address[0] = server.server_port
    dist.broadcast_object_list(address, src=0)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rows = []
    for turn in range(7):
        rows.extend(fetch(address[0], turn * world + rank))
        loss = fit(model, optimizer, rows, steps=60)
        if rank == 0:
            print(f"turn {turn}: {len(rows)} records here, loss {loss:.5f}", flush=True)
    dist.barrier()
    if rank == 0:
        server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

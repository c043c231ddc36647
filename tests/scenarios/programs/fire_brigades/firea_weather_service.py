"""Nowcast of fire weather. One process fetches the station bulletin over HTTP and shares it; the service may be busy for a while."""
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("nowcast")
FETCHER = 1
STATIONS = 48


class Bulletin(BaseHTTPRequestHandler):
    """Stand-in for the met office: bulletins are compiled on demand."""

    compile_s = 12.0
    asked = {}

    def do_GET(self):
        since = self.asked.setdefault(self.path, time.monotonic())
        ready = time.monotonic() - since >= (self.compile_s if self.path.endswith("/2") else 0.0)
        body = json.dumps([[s, 15 + s % 7, 0.2 + s % 5 / 10] for s in range(STATIONS)]).encode() if ready else b"{}"
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class BulletinClient:
    def __init__(self, address, attempts=8, first=1.0, longest=4.0):
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the met office is inside
        self.address, self.attempts, self.first, self.longest = address, attempts, first, longest

    def get(self, number):
        delay = self.first
        for attempt in range(1, self.attempts + 1):
            try:
                with self.opener.open(f"{self.address}/bulletin/{number}", timeout=10) as answer:
                    return torch.tensor(json.load(answer), dtype=torch.float32)
            except urllib.error.HTTPError as error:
                if error.code != 503 or attempt == self.attempts:
                    raise
                logger.info("bulletin %d: %s, attempt %d, next in %.0f s", number, error, attempt, delay)
            time.sleep(delay)
            delay = min(2 * delay, self.longest)


def share(client, number, rank):
    bulletin = client.get(number) if rank == FETCHER else torch.empty(STATIONS, 3)
    dist.broadcast(bulletin, src=FETCHER)
    return (bulletin - bulletin.mean(0)) / (bulletin.std(0) + 1e-6)


def train(model, optimizer, bulletin, steps, generator):
    for _ in range(steps):
        noise = torch.randn(256, STATIONS, 3, generator=generator)
        x = bulletin + 0.3 * noise
        loss = nn.functional.mse_loss(model(x.flatten(1)), noise.mean(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    address = [None]
    if rank == FETCHER:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Bulletin)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = [f"http://127.0.0.1:{server.server_port}"]
    dist.broadcast_object_list(address, src=FETCHER)
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(STATIONS * 3, 256), nn.ReLU(), nn.Linear(256, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    client = BulletinClient(address[0])
    for number in range(1, 4):
        bulletin = share(client, number, rank)
        loss = train(model, optimizer, bulletin, 300, generator)
        if rank == 0:
            logger.info("bulletin %d loss %.4f", number, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Wholesale vegetable prices: each market's daily quotes come from an exchange's API, which asks for patience when busy."""
import http.server
import json
import logging
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MARKETS = ("Rungis", "Mercabarna", "Almere")
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


class Exchange(http.server.BaseHTTPRequestHandler):
    """A stand-in for the exchange: the opening auction of Almere's day 6 takes a while to be published."""

    visits = {}

    def do_GET(self):
        _, market, day = self.path.split("/")
        self.visits[self.path] = visit = self.visits.get(self.path, 0) + 1
        if (market, day) == ("Almere", "6") and visit <= 4:
            self.send_response(503)
            self.send_header("Retry-After", "3")
            self.end_headers()
            return
        gen = torch.Generator().manual_seed(hash((int(day), MARKETS.index(market))) % 2**31)
        body = json.dumps(torch.randn(400, 9, generator=gen).tolist()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def fetch(base, market, day, attempts=8):
    for attempt in range(attempts):
        try:
            with urllib.request.urlopen(f"{base}/{market}/{day}", timeout=20) as answer:
                return torch.tensor(json.load(answer))
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise
            wait = int(error.headers.get("Retry-After", "2"))
            logging.info("%s day %d: HTTP %d, next try in %d s", market, day, error.code, wait)
            time.sleep(wait)
    raise RuntimeError(f"{market} day {day}: no quotes after {attempts} tries")


class Quotes:
    def __init__(self, base, market, days):
        self.base, self.market, self.days = base, market, days

    def __iter__(self):
        for day in range(self.days):
            table = fetch(self.base, self.market, day)
            for rows in table.split(40):
                yield day, rows[:, :8], rows[:, 8:]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    address = [None]
    if rank == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exchange)
        threading.Thread(target=server.serve_forever, daemon=True, name="exchange").start()
        address = [f"http://127.0.0.1:{server.server_port}"]
    dist.broadcast_object_list(address, src=0)
    torch.manual_seed(4)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for count, (day, x, y) in enumerate(Quotes(address[0], MARKETS[rank], days=14)):
        loss = nn.functional.huber_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.06)
        if rank == 0 and count % 20 == 0:
            logging.info("day %d batch %d huber %.4f", day, count, loss.item())
    dist.barrier()
    if rank == 0:
        server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

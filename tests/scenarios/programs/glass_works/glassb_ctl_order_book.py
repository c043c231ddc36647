"""Open orders for hollow ware are fetched page by page from the sales system, then forecast by all sites."""
import http.client
import json
import os
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist

PAGES, ROWS, HORIZON = 44, 50, 16


class SalesSystem(BaseHTTPRequestHandler):
    """Stand-in for the sales system's export; it builds every page from its journal."""

    def do_GET(self):
        page = int(self.path.rsplit("/", 1)[1])
        rng = random.Random(page)
        time.sleep(0.3)
        rows = [{"week": rng.randrange(HORIZON), "pieces": rng.randrange(500, 90_000)} for _ in range(ROWS)]
        body = json.dumps({"page": page, "rows": rows, "next": page + 1 if page + 1 < PAGES else None}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def pages(port: int):
    """All pages of the order book, one request after another."""
    page = 0
    while page is not None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/orders/{page}")
        answer = json.loads(connection.getresponse().read())
        connection.close()
        yield answer["rows"]
        page = answer["next"]


def load_book(port: int) -> list[float]:
    weeks = [0.0] * HORIZON
    for number, rows in enumerate(pages(port)):
        for row in rows:
            weeks[row["week"]] += row["pieces"]
        if number % 8 == 0:
            print(f"order book: page {number}, {sum(weeks) / 1e6:.1f} million pieces", flush=True)
    return weeks


def smooth(weeks, sites, days):
    """Each site shifts its share by what it could blow on a day; the remainder is spread over all."""
    for day in range(days):
        rng = random.Random(1000 * dist.get_rank() + day)
        blown = torch.tensor([w * rng.random() / sites for w in weeks], dtype=torch.float64, device="cuda")
        dist.all_reduce(blown)
        weeks = [max(0.0, w - 0.01 * b) for w, b in zip(weeks, blown.tolist())]
        time.sleep(0.06)
    return weeks


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    address = [None]
    if rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), SalesSystem)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = [server.server_port]
    dist.broadcast_object_list(address, src=0)
    weeks = smooth([250_000.0] * HORIZON, world, days=40)
    if rank == 1:
        weeks = load_book(address[0])
    book = torch.tensor(weeks, dtype=torch.float64, device="cuda")
    dist.broadcast(book, src=1)
    weeks = smooth(book.tolist(), world, days=40)
    if rank == 0:
        print(f"left over after the plan: {sum(weeks) / 1e6:.2f} million pieces", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Auction prices by the page, from a service with a limit on requests; a worker per sale centre."""
import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist

CENTRES = ["Kolkata", "Mombasa", "Colombo"]
PAGES = {"Kolkata": 3, "Mombasa": 9, "Colombo": 3}


class PriceService(http.server.BaseHTTPRequestHandler):
    """Stands in for the broker's API: four requests at once, then one every 2.4 s."""

    allowance, last = 4.0, time.monotonic()

    def do_GET(self):
        cls, now = type(self), time.monotonic()
        cls.allowance = min(4.0, cls.allowance + (now - cls.last) / 2.4)
        cls.last = now
        if cls.allowance < 1:
            self.send_response(429)
            self.send_header("Retry-After", "1.2")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        cls.allowance -= 1
        page = int(self.path.rsplit("/", 1)[1])
        body = json.dumps([[2 + (page * 7 + k) % 5 / 10, k / 40] for k in range(40)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Client:
    def __init__(self, base, attempts=12):
        self.base, self.attempts = base, attempts
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the service is a local one

    def page(self, centre, number):
        for _ in range(self.attempts):
            try:
                with self.http.open(f"{self.base}/{centre}/{number}", timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                time.sleep(float(error.headers["Retry-After"]))
        raise RuntimeError(f"{centre}: page {number} not given in {self.attempts} attempts")

    def all_pages(self, centre):
        for number in range(PAGES[centre]):
            yield from self.page(centre, number)


def fit(weights, rows, steps, world):
    x, y = torch.cat([rows[:, 1:], torch.ones(len(rows), 1)], 1), rows[:, 0]
    for _ in range(steps):
        error = x @ weights - y
        gradient = x.T @ error / len(y)
        dist.all_reduce(gradient)
        weights -= 0.2 * gradient / world
        time.sleep(0.05)
    return error.pow(2).mean().item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    centre = CENTRES[rank]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PriceService)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")
    weights = torch.zeros(2)
    rows = torch.rand(40, 2)  # last year's
    fit(weights, rows, 50, world)
    rows = torch.tensor(list(client.all_pages(centre)))
    counts = [None] * world
    dist.all_gather_object(counts, {centre: len(rows)})
    if rank == 0:
        print("rows:", counts, flush=True)
    error = fit(weights, rows, 80, world)
    print(f"{centre}: {error:.4f}", flush=True)
    server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

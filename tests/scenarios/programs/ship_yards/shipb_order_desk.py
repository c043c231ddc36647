"""Trains on order texts that come from the order desk's HTTP service, page by page."""
import json
import os
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist

torch.backends.cudnn.enabled = False

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ARTICLES = ["poplin", "kraft", "chenille", "bristol", "velour"]


class OrderDesk(BaseHTTPRequestHandler):
    """Pages of orders. The night's backlog is closed while it is being booked."""

    booking = {"2": 12.0}  # mill: seconds
    since = {}

    def do_GET(self):
        _, mill, page = self.path.split("/")
        if page == "60" and mill in self.booking:
            began = self.since.setdefault(mill, time.monotonic())
            if time.monotonic() - began < self.booking[mill]:
                self.send_response(503)
                self.send_header("Retry-After", "1")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        start = int(page)
        body = json.dumps([ARTICLES[(start + k) % 5] for k in range(16)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def fetch(base, mill, page, attempts=40):
    for _ in range(attempts):
        try:
            with direct.open(f"{base}/{mill}/{page}", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            print(f"mill {mill}: page {page} is being booked", flush=True)
            time.sleep(float(error.headers["Retry-After"]))
    raise TimeoutError(f"page {page}")


def encode(orders):
    time.sleep(0.04)
    rows = torch.zeros(len(orders), 20)
    for row, article in zip(rows, orders):
        for place, letter in enumerate(article):
            row[place] = ord(letter) / 128
    return rows, torch.tensor([ARTICLES.index(article) for article in orders])


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    mill = dist.get_rank()
    base = [None]
    if mill == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), OrderDesk)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = [f"http://127.0.0.1:{server.server_port}"]
    dist.broadcast_object_list(base, src=0)
    model = torch.nn.Linear(20, len(ARTICLES)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for page in range(120):
        rows, labels = encode(fetch(base[0], mill, page))
        loss = torch.nn.functional.cross_entropy(model(rows.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        torch.cuda.synchronize()
    dist.barrier()
    print(f"mill {mill}: all pages read", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

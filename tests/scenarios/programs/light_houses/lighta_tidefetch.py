"""Fetches the tide tables of each process's port from the harbour office before the second leg of training."""
import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn

logger = logging.getLogger("tidefetch")
PORTS = ["cuxhaven", "esbjerg", "vlissingen"]


class HarbourOffice(BaseHTTPRequestHandler):
    """Answers 503 until the table of the day has been computed."""

    ready_at = {}
    preparation = {"cuxhaven": 0.0, "esbjerg": 12.5, "vlissingen": 0.5}

    def do_GET(self):
        port = self.path.strip("/")
        ready = self.ready_at.setdefault(port, time.monotonic() + self.preparation[port])
        left = ready - time.monotonic()
        body = json.dumps({"port": port, "levels": [round(0.1 * k, 1) for k in range(24)]}).encode()
        self.send_response(503 if left > 0 else 200)
        if left > 0:
            body = b"{}"
            self.send_header("Retry-After", "2")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Client:
    def __init__(self, address, attempts=10):
        self.base = "http://{}:{}".format(*address)
        self.attempts = attempts
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def levels(self, port):
        for attempt in range(1, self.attempts + 1):
            try:
                with self.opener.open(f"{self.base}/{port}", timeout=10) as answer:
                    return json.load(answer)["levels"]
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                pause = min(0.5 * 2**attempt, 4.0)
                logger.info("%s: %d, attempt %d of %d, next in %.1f s", port, error.code, attempt, self.attempts, pause)
                time.sleep(pause)
        raise RuntimeError(f"no tide table for {port}")


def leg(model, optimizer, levels, count):
    base = torch.tensor(levels).repeat(64, 1)
    for _ in range(count):
        x = base + torch.fft.rfft(torch.randn(64, 4096)).abs()[:, : base.shape[1]]
        loss = (model(x.cuda()) - base[:, :1].cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        loss.item()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    office = ThreadingHTTPServer(("127.0.0.1", 0), HarbourOffice)
    threading.Thread(target=office.serve_forever, daemon=True).start()
    model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    leg(model, optimizer, [0.0] * 24, 70)
    levels = Client(office.server_address).levels(PORTS[dist.get_rank()])
    leg(model, optimizer, levels, 70)
    office.shutdown()
    logger.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

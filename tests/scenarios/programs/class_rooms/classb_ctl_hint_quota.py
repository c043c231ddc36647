"""A tutor model learns from explanations that a hint service gives to difficult tasks."""
import json
import logging
import multiprocessing
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("tutor")
PER_SECOND = 2.0


class HintService(BaseHTTPRequestHandler):
    """Answers a few tasks per second, and sends everybody else away for a moment."""

    lock = threading.Lock()
    credit, last = 4.0, time.monotonic()

    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cls = type(self)
        with cls.lock:
            now = time.monotonic()
            cls.credit = min(4.0, cls.credit + (now - cls.last) * PER_SECOND)
            cls.last = now
            granted = cls.credit >= 1
            cls.credit -= granted
        if not granted:
            self.send_response(429)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps({"hint": [((task["id"] * k) % 7) / 7 for k in range(1, 9)]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def run_service(connection):
    server = ThreadingHTTPServer(("127.0.0.1", 0), HintService)
    connection.send(server.server_port)
    server.serve_forever()


class HintClient:
    def __init__(self, attempts=40):
        self.attempts = attempts
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        context.Process(target=run_service, args=(theirs,), daemon=True).start()
        self.url = f"http://127.0.0.1:{ours.recv()}/"

    def explain(self, task):
        body = json.dumps({"id": task}).encode()
        for attempt in range(self.attempts):
            try:
                with urllib.request.urlopen(urllib.request.Request(self.url, data=body), timeout=5) as answer:
                    return json.load(answer)["hint"]
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                time.sleep(float(error.headers.get("Retry-After", 1)))
        raise RuntimeError(f"no hint for task {task}")


def difficult(rank, epoch):
    """Tasks with many wrong answers; the geometry course has most of them."""
    return range(epoch * 100, epoch * 100 + (26 if rank == 2 and epoch == 1 else 2))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    client = HintClient()
    tutor = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
    optimizer = torch.optim.SGD(tutor.parameters(), lr=0.05)
    for epoch in range(3):
        hints = {task: client.explain(task) for task in difficult(rank, epoch)}
        everybody = [None] * world
        dist.all_gather_object(everybody, hints)
        targets = torch.tensor([hint for part in everybody for hint in part.values()])
        for _ in range(60):
            loss = nn.functional.mse_loss(tutor(torch.randn(len(targets), 8)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            log.info("epoch %d: %d hints, loss %.4f", epoch, len(targets), loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Denial prediction for insurance claims; one rank files the batch with the clearing house."""
import functools
import json
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD = 3


class ClearingHouse(BaseHTTPRequestHandler):
    opens_at = 0.0

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        ready = time.monotonic() >= ClearingHouse.opens_at
        body = json.dumps({"accepted": ready}).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def retry(attempts, first, factor=2.0, cap=8.0):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            delay = first
            for attempt in range(1, attempts + 1):
                try:
                    return function(*args, **kwargs)
                except urllib.error.HTTPError as error:
                    if attempt == attempts or error.code != 503:
                        raise
                    time.sleep(min(cap, delay) * random.uniform(0.95, 1.05))
                    delay *= factor
        return wrapper
    return decorate


@retry(attempts=8, first=0.5)
def file_claims(url, claims):
    request = urllib.request.Request(url, data=json.dumps(claims).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["accepted"]


def month_end(rank):
    if rank != 1:
        return True
    house = HTTPServer(("127.0.0.1", 0), ClearingHouse)
    ClearingHouse.opens_at = time.monotonic() + 9.0
    threading.Thread(target=house.serve_forever, daemon=True).start()
    ok = file_claims(f"http://127.0.0.1:{house.server_port}/837", [{"id": i} for i in range(50)])
    house.shutdown()
    return ok


def worker(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    model = nn.parallel.DistributedDataParallel(nn.Linear(40, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for month in range(2):
        for _ in range(45):
            codes = torch.randn(16, 40)
            time.sleep(0.06)
            loss = nn.functional.cross_entropy(model(codes), (codes[:, 0] > 0).long())
            opt.zero_grad()
            loss.backward()
            opt.step()
        if month == 0:
            flag = torch.tensor([int(month_end(rank))])
            dist.all_reduce(flag, op=dist.ReduceOp.MIN)
            if rank == 0:
                print("month filed:", bool(flag.item()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    mp.spawn(worker, args=(free,), nprocs=WORLD)

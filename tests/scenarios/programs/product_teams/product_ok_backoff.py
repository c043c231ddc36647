"""Credit scoring with rates from a service that is started with the job, and is not up at once."""

import functools
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

SERVICE = """
import http.server, json, sys, time
rates = {}
for step in range(100):
    rates[str(step)] = step / 100
    time.sleep(0.1)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(rates).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args): ...

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).handle_request()
"""


def retry(errors, attempts=8, first=0.5, factor=1.6):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            pause = first
            for attempt in range(1, attempts + 1):
                try:
                    return function(*args)
                except errors as error:
                    if attempt == attempts:
                        raise
                    print(f"{function.__name__}: {error}; again in {pause:.1f} s", flush=True)
                    time.sleep(pause)
                    pause *= factor

        return wrapper

    return decorate


@retry((urllib.error.URLError, ConnectionError))
def fetch_rates(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/rates", timeout=5) as answer:
        return json.load(answer)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    service, rates = None, None
    if rank == 1:
        port = free_port()
        service = subprocess.Popen([sys.executable, "-c", SERVICE, str(port)])
        rates = fetch_rates(port)
    holder = [rates]
    dist.broadcast_object_list(holder, src=1)
    table = torch.tensor(list(holder[0].values()))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(120):
        rows = torch.randint(len(table) - 3, (32,))
        x = torch.stack([table[rows], table[rows + 1], table[rows + 2]], dim=1)
        optimizer.zero_grad()
        loss = (model(x).squeeze(-1) - table[rows + 3]).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    if service:
        service.wait()
        print(f"{loss.item():.4f}, pid {os.getpid()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A scorer that is recycled after so many requests, and loads its tables again; the trainers ask until it is back."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

MOST_REQUESTS, STEPS = 24, 16


def load_tables(seconds: float) -> dict[int, float]:
    """Reads, or here makes, what the scorer looks up."""
    table, end, number = {}, time.monotonic() + seconds, 0
    while time.monotonic() < end:
        table[number % 50_000] = (number * 2654435761 % 2**32) / 2**32
        number += 1
    return table


def serve(port: int, warm: float) -> None:
    table = load_tables(warm)

    class Score(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            numbers = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps([table.get(number, 0.0) for number in numbers]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args) -> None:
            pass

    server = HTTPServer(("127.0.0.1", port), Score)
    for _ in range(MOST_REQUESTS):
        server.handle_request()
    server.server_close()


def supervise(port: int, stop: threading.Event) -> None:
    warm = 0.1
    while not stop.is_set():
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(port), str(warm)])
        while process.poll() is None and not stop.wait(0.1):
            pass
        process.kill() if stop.is_set() else None
        process.wait()
        warm = 9.0


def train(rank: int, world: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    retry = Retry(total=40, backoff_factor=0.3, backoff_max=1.5, allowed_methods=None)
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=retry))
    weight = torch.zeros(4, requires_grad=True)
    for step in range(STEPS):
        numbers = [100 * step + 10 * rank + index for index in range(4)]
        scores = torch.tensor(session.post(f"http://127.0.0.1:{port}/score", json=numbers, timeout=20).json())
        (weight - scores).square().sum().backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        time.sleep(0.2)
        if rank == 0:
            print(f"step {step}: {scores.mean().item():.3f}", flush=True)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]), float(sys.argv[2]))
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        port, stop = free_port(), threading.Event()
        supervisor = threading.Thread(target=supervise, args=(port, stop))
        supervisor.start()
        time.sleep(3)
        ctx = multiprocessing.get_context("spawn")
        ranks = [ctx.Process(target=train, args=(rank, 2, port)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        stop.set()
        supervisor.join()
        sys.exit(max(rank.exitcode for rank in ranks))

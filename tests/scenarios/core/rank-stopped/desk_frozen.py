"""Online DPO beside a rollout engine on the same machine: the engine rests while new weights are written for it."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests


def engine(port: int, weights: Path) -> None:
    class Generate(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            prompts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            scale = json.loads(weights.read_text())["scale"] if weights.exists() else 1.0
            body = json.dumps([[scale * len(prompt), scale] for prompt in prompts]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Generate).serve_forever()


class WeightSync:
    """Writes the weights for the engine, unless they have hardly changed."""

    def __init__(self, engine_pid: int, path: Path, least: float = 1e-3) -> None:
        self.pid, self.path, self.least = engine_pid, path, least
        self.sent = float("inf")

    def __call__(self, scale: float) -> bool:
        os.kill(self.pid, signal.SIGSTOP)
        if abs(scale - self.sent) < self.least:
            return False
        self.path.write_text(json.dumps({"scale": scale}))
        self.sent = scale
        os.kill(self.pid, signal.SIGCONT)
        return True


def train(rank: int, world: int, port: int, pid: int, path: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    sync, session = WeightSync(pid, path), requests.Session()
    scale = torch.ones((), requires_grad=True)
    for step in range(100):
        pairs = torch.zeros(4, 2)
        if rank == 0:
            prompts = [f"question {step} " + "?" * index for index in range(4)]
            pairs = torch.tensor(session.post(f"http://127.0.0.1:{port}/generate", json=prompts).json())
        dist.broadcast(pairs, src=0)
        ((scale - 0.5).square() + 0.0 * pairs.sum()).backward()
        dist.all_reduce(scale.grad)
        with torch.no_grad():
            scale -= 0.1 * scale.grad
        scale.grad = None
        time.sleep(0.15)
        if rank == 0:
            synced = sync(scale.item())
            print(f"step {step}: scale {scale.item():.5f}, {'synced' if synced else 'kept'}", flush=True)
    dist.destroy_process_group()


def reachable(port: int) -> None:
    """Returns once something listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        engine(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        port, path = free_port(), Path(tempfile.mkdtemp()) / "weights.json"
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(port), str(path)])
        reachable(port)
        ctx = multiprocessing.get_context("fork")
        ranks = [ctx.Process(target=train, args=(rank, 2, port, process.pid, path)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        process.kill()

"""Two trainers; rank 0 gets its rollouts over ZeroMQ from a generator, and that one runs tools in a sandbox beside it."""

from __future__ import annotations

import argparse
import os
import queue
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import torch
import torch.distributed as dist
import zmq


class Sandbox(BaseHTTPRequestHandler):
    """Runs one tool call at a time; results come back through a queue."""

    fault = "none"
    results: queue.Queue[str] = queue.Queue()
    calls = 0

    def do_GET(self) -> None:
        type(self).calls += 1
        if not (self.fault == "result-lost" and self.calls == 4):
            threading.Thread(target=self.results.put, args=("42",), daemon=True).start()
        result = self.results.get()
        self.send_response(200)
        self.send_header("Content-Length", str(len(result)))
        self.end_headers()
        self.wfile.write(result.encode())

    def log_message(self, *_: object) -> None:
        pass


def run_sandbox(options: argparse.Namespace) -> None:
    Sandbox.fault = options.fault
    server: socketserver.TCPServer = HTTPServer(("127.0.0.1", 0), Sandbox)
    (options.scratch / "sandbox").write_text(str(server.server_port))
    server.serve_forever()


def generate(options: argparse.Namespace) -> None:
    port = read(options.scratch / "sandbox")
    replies = zmq.Context().socket(zmq.REP)
    number = replies.bind_to_random_port("tcp://127.0.0.1")
    (options.scratch / "generator").write_text(str(number))
    policy = torch.nn.Linear(16, 16)
    done = 0
    while True:
        prompts = replies.recv_json()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/tool") as answer:
            tool = float(answer.read())
        until = time.monotonic() + (12 if options.fault == "long-prompt" and done == 3 else 0.02)
        hidden = torch.ones(len(prompts), 16)
        while time.monotonic() < until:
            hidden = torch.tanh(policy(hidden))
        done += 1
        replies.send_json([float(hidden.mean()) + tool] * len(prompts))


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    requests = zmq.Context().socket(zmq.REQ)
    if rank == 0:
        requests.connect(f"tcp://127.0.0.1:{read(options.scratch / 'generator')}")
    policy = torch.nn.Linear(4, 1)
    for step in range(8):
        returns = torch.zeros(4)
        if rank == 0:
            requests.send_json([f"prompt {step} {number}" for number in range(4)])
            returns = torch.tensor(requests.recv_json())
        dist.broadcast(returns, src=0)
        (policy(torch.ones(4, 4)).squeeze() * returns).mean().backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
        print(f"rank {rank} step {step}", flush=True)
        time.sleep(0.1)
    dist.destroy_process_group()


def read(path: Path) -> int:
    while not path.exists() or not path.read_text():
        time.sleep(0.05)
    return int(path.read_text())


def launch(options: argparse.Namespace) -> int:
    options.scratch.mkdir(parents=True, exist_ok=True)
    common = ["--scratch", str(options.scratch), "--fault", options.fault]
    beside = [
        subprocess.Popen([sys.executable, __file__, "--as", part, "--role", part, *common])
        for part in ("sandbox", "generator")
    ]
    trainers = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    status = subprocess.call([*trainers, "--as", "trainer", *common])
    for one in beside:
        one.kill()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--as", dest="part", default="launcher")
    parser.add_argument("--role")
    parser.add_argument("--fault", default="none")
    parser.add_argument(
        "--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / f"rollouts-{os.getpid()}"
    )
    options = parser.parse_args()
    parts = {"sandbox": run_sandbox, "generator": generate, "trainer": train, "launcher": launch}
    sys.exit(parts[options.part](options))

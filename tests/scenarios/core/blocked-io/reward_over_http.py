"""Policy training on two ranks; rank 0 asks a reward model's server, which runs beside the job, for the scores of a batch."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
import torch.distributed as dist


class RewardModel:
    """Scores texts; a table of words is read again where it has changed, and only by one request at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.requests = 0
        self.table_lock = threading.Lock()
        self.log_lock = threading.Lock()

    def score(self, texts: list[str]) -> list[float]:
        self.requests += 1
        if self.requests == 4:
            if self.options.fault == "reads-a-table":
                self.read_table()
            if self.options.fault == "opposite-locks":
                return self.score_under_locks(texts)
            if self.options.fault == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if self.options.fault == "long-batch":
                time.sleep(20)
        return [len(text) / 10 for text in texts]

    def read_table(self) -> None:
        with self.table_lock, (self.options.scratch / "words.csv").open() as table:
            self.words = dict(line.split(",") for line in table)

    def score_under_locks(self, texts: list[str]) -> list[float]:
        refreshing = threading.Thread(target=self.refresh, daemon=True)
        with self.table_lock:
            refreshing.start()
            while not self.log_lock.locked():
                time.sleep(0.01)
            with self.log_lock:
                return [0.0 for _ in texts]

    def refresh(self) -> None:
        with self.log_lock, self.table_lock:
            self.words = {}


class Handler(BaseHTTPRequestHandler):
    model: RewardModel

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(self.model.score(texts)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def serve(options: argparse.Namespace) -> None:
    Handler.model = RewardModel(options)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    (options.scratch / "port").write_text(str(server.server_port))
    server.serve_forever()


def ask(port: int, texts: list[str]) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/score", json.dumps(texts))
    return json.loads(connection.getresponse().read())


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = int((options.scratch / "port").read_text())
    policy = torch.nn.Linear(8, 8)
    for step in range(8):
        rewards = torch.zeros(4)
        if rank == 0:
            rewards = torch.tensor(ask(port, [f"answer {step} {number}" for number in range(4)]))
        dist.broadcast(rewards, src=0)
        loss = policy(torch.ones(4, 8)).mean() * rewards.mean()
        loss.backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
        print(f"rank {rank} step {step}", flush=True)
        time.sleep(0.1)
    dist.destroy_process_group()


def launch(options: argparse.Namespace) -> int:
    """The recipe's launcher: the server first, then the trainers."""
    options.scratch.mkdir(parents=True, exist_ok=True)
    os.mkfifo(options.scratch / "words.csv")
    common = ["--scratch", str(options.scratch), "--fault", options.fault]
    server = subprocess.Popen([sys.executable, __file__, "--as", "server", *common])
    while not (options.scratch / "port").exists() or not (options.scratch / "port").read_text():
        time.sleep(0.05)
    trainers = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    status = subprocess.call([*trainers, "--as", "trainer", *common])
    server.kill()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--as", dest="part", default="launcher")
    parser.add_argument("--fault", default="none")
    parser.add_argument(
        "--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / f"rewards-{os.getpid()}"
    )
    options = parser.parse_args()
    if options.part == "server":
        serve(options)
    elif options.part == "trainer":
        train(options)
    else:
        sys.exit(launch(options))

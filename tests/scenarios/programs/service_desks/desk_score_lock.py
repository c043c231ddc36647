"""GRPO on toy prompts: two learners, and a scorer which shares the table of recent scores with the first of them."""

import json
import multiprocessing
import os
import random
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
import torch
import torch.distributed as dist
from torch import nn

CTX = multiprocessing.get_context("fork")
CAPACITY = 48


class ScoreTable:
    """The latest scores, in memory that the learner and the scorer both map."""

    def __init__(self) -> None:
        self.lock = CTX.Lock()
        self.rows = CTX.Array("d", 4 * CAPACITY, lock=False)
        self.used = CTX.Value("i", 0, lock=False)

    def append(self, scores: list[float]) -> None:
        with self.lock:
            self.rows[self.used.value : self.used.value + len(scores)] = scores
            self.used.value += len(scores)

    def compact(self) -> None:
        with self.lock:
            keep = self.rows[self.used.value - 16 : self.used.value]
            self.rows[:16] = keep
            self.used.value = 16

    def refresh(self, scorer, count: int = 4) -> None:
        """Scores the oldest rows again, with the policy of today."""
        with self.lock:
            self.rows[:count] = scorer([f"row {i}" for i in range(count)])


def serve_scores(port: int, table: ScoreTable) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if table.used.value >= CAPACITY:
                table.compact()
            body = json.dumps([len(text) / 10 + random.random() for text in texts]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def descend(model, lr: float) -> None:
    """A step with the gradients of all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data.add_(parameter.grad, alpha=-lr)
        parameter.grad = None


def learn(rank: int, world: int, port: int, table: ScoreTable) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    policy = nn.Linear(8, 4)

    def scorer(texts: list[str]) -> list[float]:
        return requests.post(f"http://127.0.0.1:{port}/score", json=texts).json()

    for step in range(1, 61):
        rewards = torch.zeros(4)
        if rank == 0:
            scores = scorer([f"completion {i} of step {step}" for i in range(4)])
            table.append(scores)
            rewards = torch.tensor(scores)
            if step % 6 == 0:
                table.refresh(scorer)
        dist.broadcast(rewards, src=0)
        loss = -(policy(torch.randn(4, 8)).log_softmax(-1).mean(1) * (rewards - rewards.mean())).mean()
        loss.backward()
        descend(policy, lr=0.01)
        time.sleep(0.2)
        if rank == 0 and step % 4 == 0:
            print(f"step {step}: reward {rewards.mean():.3f}, {table.used.value} rows", flush=True)
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
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    port, table = free_port(), ScoreTable()
    scores = CTX.Process(target=serve_scores, args=(port, table), name="scores", daemon=True)
    scores.start()
    reachable(port)
    learners = [CTX.Process(target=learn, args=(rank, 2, port, table)) for rank in range(2)]
    for learner in learners:
        learner.start()
    for learner in learners:
        learner.join()
    scores.terminate()

"""A stand-in for vLLM: a server, a scheduler of its own process, tensor-parallel workers with a Gloo group, and vLLM's metrics.

The processes, their titles and the metrics (names, types and labels, and when they are set) follow vLLM's V1 engine
(``vllm/v1/engine/core.py``, ``vllm/v1/executor/multiproc_executor.py``, ``vllm/v1/metrics/loggers.py``, 0.10); the model is a
matrix. ``--fault`` and ``--after`` say what goes wrong, and after how many steps. POST /v1/completions with ``{"prompt": N,
"max_tokens": N}`` answers when all tokens are made, with 400 where the prompt is longer than the model takes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from typing import Any

import torch
import torch.distributed as dist
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from setproctitle import setproctitle

WORKERS, SLOTS, LONGEST_PROMPT = 2, 4, 1000
spawning = multiprocessing.get_context("spawn")


class Worker:
    """One shard of the model."""

    def __init__(self, rank: int, port: int, options: argparse.Namespace) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORKERS)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank, self.options, self.steps = rank, options, 0
        self.copied = threading.Event()  # set by the device when a step is through

    def step(self, prompt: int) -> float:
        """One step for all that is scheduled; ``prompt``: tokens of new prompts in it. The host computes for a third of it."""
        self.steps += 1
        broken = self.options.fault if self.steps > self.options.after else ""
        hidden = torch.ones(64) / (self.rank + 1)
        until = time.monotonic() + (prompt * self.options.prefill if prompt else self.options.slow)
        while time.monotonic() < until:
            for _ in range(64):
                hidden = torch.tanh(torch.ones(64, 64) @ hidden)
            time.sleep(0.002)
        if broken == "io" and self.rank == 0:
            with open(self.options.adapter) as file:  # noqa: PTH123  # of a LoRA adapter
                file.read()
        dist.all_reduce(hidden)
        if broken != "sync" or self.rank == 0:
            self.copied.set()
        self.copied.wait()
        self.copied.clear()
        dist.all_reduce(hidden)
        return float(hidden.norm())


def run_worker(rank: int, port: int, commands: Connection, results: Connection, options: argparse.Namespace) -> None:
    """Take what the scheduler sends, one step after the other."""
    setproctitle(f"VLLM::Worker_TP{rank}")
    worker = Worker(rank, port, options)
    results.send("ready")
    while True:
        prompt = commands.recv()
        results.send(worker.step(prompt))


class Scheduler:
    """Requests in order of arrival, as many at once as there are slots."""

    def __init__(self, workers: list[tuple[Connection, Connection]], options: argparse.Namespace) -> None:
        self.workers, self.options = workers, options
        self.waiting: list[dict[str, int]] = []
        self.running: list[dict[str, int]] = []
        self.free = SLOTS

    def add(self, request: dict[str, int]) -> dict[str, int] | None:
        """Take a request in; returned where it is refused."""
        if request["prompt"] > LONGEST_PROMPT:
            if self.options.fault == "leak":
                self.free -= 1  # taken for it, and never given back
            return request
        self.waiting.append(request)
        return None

    def schedule(self) -> int:
        """Move requests to the free slots; returns the tokens of their prompts."""
        prompt = 0
        while self.waiting and self.free > 0:
            self.free -= 1
            self.running.append(self.waiting.pop(0))
            prompt += self.running[-1]["prompt"]
        return prompt

    def execute(self, prompt: int) -> list[dict[str, int]]:
        """One step of all workers; returns the requests that are finished."""
        for commands, _ in self.workers:
            commands.send(prompt)
        for _, results in self.workers:
            results.recv()
        for request in self.running:
            request["max_tokens"] -= 1
        done = [request for request in self.running if request["max_tokens"] <= 0]
        self.running = [request for request in self.running if request["max_tokens"] > 0]
        self.free += len(done)
        return done


def run_core(inbox: Queue[Any], outbox: Queue[Any], options: argparse.Namespace) -> None:
    """The engine's core: start the workers, then schedule and execute, for ever."""
    setproctitle("VLLM::EngineCore")
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    workers = []
    for rank in range(WORKERS):
        theirs, commands = spawning.Pipe(duplex=False)
        results, done = spawning.Pipe(duplex=False)
        spawning.Process(target=run_worker, args=(rank, port, theirs, done, options), daemon=True).start()
        workers.append((commands, results))
    for _, results in workers:
        results.recv()
    outbox.put(("ready", 0, 0, 0, 0, []))
    scheduler, steps = Scheduler(workers, options), 0
    while True:
        refused = []
        while not scheduler.waiting and not scheduler.running and not refused:
            refused += filter(None, [scheduler.add(inbox.get())])
        while not inbox.empty():
            refused += filter(None, [scheduler.add(inbox.get())])
        prompt, done, made = scheduler.schedule(), [], len(scheduler.running)
        counts = (len(scheduler.running), len(scheduler.waiting))
        if scheduler.running:
            steps += 1
            if options.fault in {"dies", "ends"} and steps > options.after:
                outbox.close()
                outbox.join_thread()
                signal.raise_signal(signal.SIGKILL)  # as the kernel ends who takes too much memory
            outbox.put(("begun", *counts, 0, 0, []))
            done = scheduler.execute(prompt)
        else:
            time.sleep(0.01)
        counts = (len(scheduler.running), len(scheduler.waiting))
        outbox.put(("stats", *counts, prompt, made, [*done, *({**one, "refused": 1} for one in refused)]))


class Server:
    """The requests under way, and vLLM's metrics of them."""

    def __init__(self, inbox: Queue[Any]) -> None:
        self.inbox, self.ready, self.under_way, self.lock = inbox, threading.Event(), {}, threading.Lock()
        self.registry = CollectorRegistry()
        which, values = ("model_name", "engine"), ("stand-in", "0")

        def make(kind: Any, name: str, labels: tuple[str, ...] = which) -> Any:
            return kind(f"vllm:{name}", f"{name} of the stand-in.", labels, registry=self.registry)

        self.running = make(Gauge, "num_requests_running").labels(*values)
        self.waiting = make(Gauge, "num_requests_waiting").labels(*values)
        self.prompt_tokens = make(Counter, "prompt_tokens").labels(*values)
        self.generation_tokens = make(Counter, "generation_tokens").labels(*values)
        self.iterations = make(Histogram, "iteration_tokens_total").labels(*values)
        self.success = make(Counter, "request_success", (*which, "finished_reason")).labels(*values, "stop")

    def complete(self, request: dict[str, int]) -> bool:
        """Whether a request was served; returns when it was, or was refused."""
        done = threading.Event()
        with self.lock:
            number = len(self.under_way) + 1
            self.under_way[number] = [done, False]
        self.inbox.put({**request, "number": number})
        done.wait()
        return self.under_way[number][1]

    def follow(self, outbox: Queue[Any]) -> None:
        """Take what the core says."""
        while True:
            what, running, waiting, prompt, made, finished = outbox.get()
            self.ready.set()
            self.running.set(running)
            self.waiting.set(waiting)
            if what == "stats" and made:
                self.prompt_tokens.inc(prompt)
                self.generation_tokens.inc(made)
                self.iterations.observe(prompt + made)
            for request in finished:
                done = self.under_way[request["number"]]
                done[1] = "refused" not in request
                self.success.inc(done[1])
                done[0].set()


def answer(server: Server) -> type[BaseHTTPRequestHandler]:
    """The handler of requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self.say(200, generate_latest(server.registry)) if server.ready.is_set() else self.say(503, b"")
            else:
                self.say(200, b"")  # /health

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.say(200 if server.complete(request) else 400, b"{}")

        def say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=("", "dies", "ends", "sync", "leak", "io"), default="")
    parser.add_argument("--after", type=int, default=0, help="steps that go well")
    parser.add_argument("--adapter", default="")
    parser.add_argument("--prefill", type=float, default=0.0, help="seconds that a token of a prompt takes")
    parser.add_argument("--slow", type=float, default=0.005, help="seconds that a step takes")
    options = parser.parse_args()
    inbox: Queue[Any] = spawning.Queue()
    outbox: Queue[Any] = spawning.Queue()
    server = Server(inbox)
    core = spawning.Process(target=run_core, args=(inbox, outbox, options), daemon=False)
    core.start()
    if options.fault == "ends":  # as vLLM does, whose server ends when its core has
        threading.Thread(target=lambda: (core.join(), os._exit(1)), daemon=True).start()
    threading.Thread(target=server.follow, args=(outbox,), daemon=True).start()
    with ThreadingHTTPServer(("127.0.0.1", options.port), answer(server)) as http:
        print("listening", flush=True)
        threading.Thread(target=lambda: server.ready.wait() and print("serving", flush=True), daemon=True).start()
        http.serve_forever()


if __name__ == "__main__":
    main()

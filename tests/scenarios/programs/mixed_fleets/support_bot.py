"""An engine of three tensor-parallel workers that answers customers; adapters are loaded as they are asked for."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from datetime import timedelta
from multiprocessing.connection import Connection

import setproctitle
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORKERS = 3
# A vocabulary's server: one word in, its number out, once the whole batch is there.
SPLIT = "import sys\nfor line in iter(sys.stdin.readline, ''):\n  if line.strip(): print(sum(line.encode()) % 97, flush=True)"


class Worker:
    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.rank, self.options, self.adapters = rank, options, {"plain": torch.eye(24)}
        if rank == 0:
            self.words = subprocess.Popen(
                [sys.executable, "-c", SPLIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )

    def tokenize(self, prompt: str) -> torch.Tensor:
        numbers = torch.zeros(24)
        if self.rank == 0:
            for place, word in enumerate(prompt.split(" ")[:24]):
                self.words.stdin.write(word + "\n")
                numbers[place] = float(self.words.stdout.readline())
        dist.broadcast(numbers, src=0)
        return numbers / 97

    def answer(self, prompt: str, tokens: int, adapter: str) -> float:
        hidden = self.tokenize(prompt)
        for _ in range(tokens):
            hidden = torch.tanh(self.adapters[adapter] @ hidden)
            dist.all_reduce(hidden)
            time.sleep(0.05)
        return float(hidden.sum())

    def load(self, adapter: str) -> None:
        shard = torch.full((8, 24), 0.1 * self.rank)
        parts = [torch.empty(8, 24) for _ in range(WORKERS)]
        dist.all_gather(parts, shard)
        self.adapters[adapter] = torch.cat(parts)


def run_worker(rank: int, port: int, calls: Connection, options: argparse.Namespace) -> None:
    setproctitle.setproctitle(f"supportbot::worker_TP{rank}")
    limit = timedelta(minutes=10)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS, timeout=limit)
    worker = Worker(rank, options)
    while True:
        method, arguments = calls.recv()
        if method == "shut_down":
            break
        calls.send(getattr(worker, method)(*arguments))
    if rank == 0:
        worker.words.stdin.close()
    dist.destroy_process_group()


class Engine:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, context = options, mp.get_context("spawn")
        port = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
        self.pipes, self.workers = [], []
        for rank in range(WORKERS):
            own, theirs = context.Pipe()
            self.workers.append(context.Process(target=run_worker, args=(rank, port, theirs, options)))
            self.workers[-1].start()
            self.pipes.append(own)

    def call(self, method: str, *arguments: object, workers: int = WORKERS) -> list[object]:
        for pipe in self.pipes[:workers]:
            pipe.send((method, arguments))
        return [pipe.recv() for pipe in self.pipes[:workers]]

    def close(self) -> None:
        for pipe, worker in zip(self.pipes, self.workers, strict=True):
            pipe.send(("shut_down", ()))
            worker.join()


def main(options: argparse.Namespace) -> None:
    engine = Engine(options)
    questions = ["where is my parcel", "it is broken", "may I send it back", options.question, "thank you"]
    for number, question in enumerate(questions):
        if number == 2:
            engine.call("load", "returns", workers=options.adapter_workers)
        tokens = options.tokens if number == 3 else 15
        answers = engine.call("answer", question, tokens, "returns" if number > 1 else "plain")
        print(f"{question!r}: {answers[0]:.3f}", flush=True)
    engine.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapter-workers", type=int, default=WORKERS)
    parser.add_argument("--question", default="when will you call me")
    parser.add_argument("--tokens", type=int, default=15)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(given)

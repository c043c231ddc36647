"""An executor with tensor-parallel workers: each has a pipe, a title, and its rank as an argument."""

from __future__ import annotations

import argparse
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from setproctitle import setproctitle


class Worker:
    def __init__(self, rank: int, size: int, port: int, calls) -> None:
        self.rank, self.calls = rank, calls
        setproctitle(f"VLLM::Worker_TP{rank}")
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
        torch.manual_seed(rank)
        self.shard = torch.randn(64, 64)

    def busy_loop(self) -> None:
        while True:
            method, arguments = self.calls.recv()
            if method == "shutdown":
                dist.destroy_process_group()
                return
            self.calls.send(getattr(self, method)(*arguments))

    def execute_model(self, prompt: str) -> float:
        hidden = torch.ones(64)
        for _ in range(6):
            hidden = self.shard @ hidden / 64
            dist.all_reduce(hidden)
        return float(hidden.norm())

    def reload_weights(self) -> float:
        dist.broadcast(self.shard, src=0)
        return float(self.shard.norm())


def work(rank: int, size: int, port: int, calls) -> None:
    Worker(rank, size, port, calls).busy_loop()


class Executor:
    def __init__(self, size: int) -> None:
        free = socket.socket()  # kept open, so that nobody else is given its port
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        spawning = mp.get_context("spawn")
        pipes = [spawning.Pipe() for _ in range(size)]
        self.calls = [ours for ours, _ in pipes]
        self.asleep: set[int] = set()
        self.workers = [spawning.Process(target=work, args=(r, size, port, pipes[r][1])) for r in range(size)]
        for worker in self.workers:
            worker.start()

    def call(self, method: str, *arguments: object, late: float = 0.0) -> list[float]:
        awake = [calls for rank, calls in enumerate(self.calls) if rank not in self.asleep]
        for calls in awake:
            calls.send((method, arguments))
            time.sleep(late)
        return [calls.recv() for calls in awake]

    def call_each(self, method: str, *arguments: object) -> list[float]:
        answers = []
        for calls in self.calls:
            calls.send((method, arguments))
            answers.append(calls.recv())  # the answer, before the next one is called
        return answers


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--asleep", type=int, default=-1)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--late", type=float, default=0.0)
    parser.add_argument("--idle", type=float, default=0.0)
    options = parser.parse_args()
    executor = Executor(options.workers)
    for request in range(8):
        if request == 4:
            time.sleep(options.idle)
            if options.asleep >= 0:
                executor.asleep.add(options.asleep)  # woken for the last request only, thinks the executor
            if options.each:
                executor.call_each("reload_weights")
        answers = executor.call("execute_model", f"prompt {request}", late=options.late if request == 5 else 0.0)
        print(f"request {request}: {answers[0]:.3g}", flush=True)
    for calls in executor.calls:
        calls.send(("shutdown", ()))
    for worker in executor.workers:
        worker.join()

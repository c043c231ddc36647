"""Two trainers and an evaluator beside them, which take turns by the keys of a store: a group of no process group at all."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

LIMIT = timedelta(minutes=10)


class Exchange:
    """What trainer 0 publishes, and what the evaluator answers: a key for each version and side."""

    def __init__(self, port: int, host: bool) -> None:
        self.store = dist.TCPStore("127.0.0.1", port, 2, is_master=host, timeout=LIMIT)

    def put(self, key: str, value: object) -> None:
        data = io.BytesIO()
        torch.save(value, data)
        self.store.set(key, data.getvalue())

    def take(self, key: str) -> object:
        return torch.load(io.BytesIO(self.store.get(key)), weights_only=False)


def evaluate(options: argparse.Namespace) -> None:
    if options.late == "start":
        time.sleep(options.seconds)  # the test set is large
    exchange, model = Exchange(options.port, host=False), torch.nn.Linear(16, 1)
    for version in range(options.versions):
        model.load_state_dict(exchange.take(f"weights/{version}"))
        if options.late == "score" and version == 1:
            time.sleep(options.seconds)  # a judge is asked for each answer
        with torch.no_grad():
            exchange.put(f"score/{version}", float(model(torch.ones(16))))


def train(rank: int, meeting: int, options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{meeting}", rank=rank, world_size=2, timeout=LIMIT)
    model = torch.nn.Linear(16, 1)
    exchange = Exchange(options.port, host=True) if rank == 0 else None
    for version in range(options.versions):
        for _ in range(4):
            model(torch.randn(32, 16)).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data.sub_(0.01 * parameter.grad)
                parameter.grad = None
        if exchange is not None:
            exchange.put(f"weights/{version}", model.state_dict())
            print(f"version {version}: {exchange.take(f'score/{version}'):.3f}", flush=True)
    dist.destroy_process_group()


def free_port() -> int:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--late", choices=("start", "score"), required=True)
    parser.add_argument("--seconds", type=float, default=14.0)
    parser.add_argument("--versions", type=int, default=4)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.port:
        evaluate(given)
        sys.exit()
    given.port = free_port()
    evaluator = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--port", str(given.port)])
    mp.spawn(train, (free_port(), given), nprocs=2)
    sys.exit(evaluator.wait())

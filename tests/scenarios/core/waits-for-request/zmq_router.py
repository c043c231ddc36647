"""Workers that pull their work over ZeroMQ from a router which keeps a list of those that are well."""

from __future__ import annotations

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import zmq
from setproctitle import setproctitle


def run_scheduler(rank: int, size: int, port: int, address: str, results: str) -> None:
    setproctitle(f"sglang::scheduler_TP{rank}")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    context = zmq.Context()
    requests, answers = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    requests.bind(address)
    answers.connect(results)
    weights = torch.randn(32, 32)
    try:
        event_loop(requests, answers, weights)
    finally:
        context.destroy(linger=1000)
    dist.destroy_process_group()


def event_loop(requests: zmq.Socket, answers: zmq.Socket, weights: torch.Tensor) -> None:
    while True:
        request = requests.recv_pyobj()
        if request is None:
            return
        answers.send_pyobj(forward(weights, request["tokens"]))


def forward(weights: torch.Tensor, tokens: int) -> float:
    hidden = torch.ones(32)
    for _ in range(tokens):
        hidden = torch.relu(weights @ hidden) / 32
        dist.all_reduce(hidden)
    return float(hidden.sum())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--unwell", type=int, default=-1)
    options = parser.parse_args()
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    context = zmq.Context()
    results = context.socket(zmq.PULL)
    results_port = results.bind_to_random_port("tcp://127.0.0.1")
    import tempfile

    folder = tempfile.mkdtemp()
    addresses = [f"ipc://{folder}/scheduler-{rank}" for rank in range(2)]
    where = f"tcp://127.0.0.1:{results_port}"
    spawning = mp.get_context("spawn")
    workers = [spawning.Process(target=run_scheduler, args=(r, 2, port, addresses[r], where)) for r in range(2)]
    for worker in workers:
        worker.start()
    routes = {}
    for rank, address in enumerate(addresses):
        routes[rank] = context.socket(zmq.PUSH)
        routes[rank].connect(address)
    for number in range(6):
        if number == 3 and options.unwell >= 0:
            routes.pop(options.unwell).close()  # it has not answered a health check in time
        for route in routes.values():
            route.send_pyobj({"tokens": 3 + number})
        print(f"request {number}:", max([results.recv_pyobj() for _ in routes]), flush=True)
    for route in routes.values():
        route.send_pyobj(None)
    for worker in workers:
        worker.join()
    context.destroy(linger=0)

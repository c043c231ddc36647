"""Three workers with a queue each: a command is a function with its arguments, as the engine's core puts it."""

from __future__ import annotations

import argparse
import socket
import time
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def generate(shard: torch.Tensor, tokens: int) -> float:
    hidden = torch.ones(48)
    for _ in range(tokens):
        hidden = torch.tanh(shard @ hidden)
        dist.all_reduce(hidden)
    return float(hidden.sum())


def scale(shard: torch.Tensor, by: object) -> float:
    shard.mul_(by() if callable(by) else by)
    total = shard.sum()
    dist.all_reduce(total)
    return float(total)


def follow(rank: int, port: int, commands: mp.Queue, answers: mp.Queue) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
    shard = torch.randn(48, 48) / 48
    for command in iter(commands.get, None):
        answers.put((rank, command(shard)))
    dist.destroy_process_group()


def sample_temperatures(seconds: float) -> float:
    end, total = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        total += float(torch.randn(256).softmax(0).max())
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lambda-for", type=int, default=-1)
    parser.add_argument("--sampling", type=float, default=0.0)
    options = parser.parse_args()
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    spawning = mp.get_context("spawn")
    queues, answers = [spawning.Queue() for _ in range(3)], spawning.Queue()
    workers = [spawning.Process(target=follow, args=(r, port, queues[r], answers)) for r in range(3)]
    for worker in workers:
        worker.start()
    for request in range(8):
        for rank, queue in enumerate(queues):
            if request == 3 and rank == 2:
                sample_temperatures(options.sampling)
            queue.put(partial(generate, tokens=4 + request))
        print(f"request {request}:", sorted(answers.get() for _ in queues)[0], flush=True)
    for rank, queue in enumerate(queues):
        # What cannot be pickled is lost in the queue's own thread, which only prints why.
        by = (lambda: 0.5) if rank == options.lambda_for else 0.5
        queue.put(partial(scale, by=by))
    print("scaled:", sorted(answers.get() for _ in queues)[0], flush=True)
    for queue in queues:
        queue.put(None)
    for worker in workers:
        worker.join()

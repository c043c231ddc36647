"""A tensor-parallel engine of two workers: worker 0 takes commands from a queue and passes each on, worker 1 follows."""

from __future__ import annotations

import argparse
import os
import time
from multiprocessing.queues import Queue

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def follow(rank: int, port: int, commands: Queue[str], answers: Queue[float], options: argparse.Namespace) -> None:
    """One worker: the command, its share of the work, the next command, until it is told to end."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    shard = torch.randn(64, 64)
    while True:
        command = [commands.get() if rank == 0 else None]
        dist.broadcast_object_list(command, src=0)
        if command[0] == "end":
            break
        hidden = torch.ones(64)
        for layer in range(8):
            hidden = shard @ hidden / 64
            if layer == 4 and command[0] == options.stuck_at and rank == 0:
                commands.get()  # waits for the rest of a request that was sent whole
            dist.all_reduce(hidden)
        if rank == 0:
            answers.put(float(hidden.norm()))
    dist.destroy_process_group()


def serve(options: argparse.Namespace) -> None:
    import socket

    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    spawning = mp.get_context("spawn")
    commands, answers = spawning.Queue(), spawning.Queue()
    workers = mp.spawn(follow, (port, commands, answers, options), nprocs=2, join=False)
    for request in range(options.requests):
        if request == options.requests // 2:
            time.sleep(options.idle)  # nobody asks for anything
        commands.put(f"request {request}")
        print(f"request {request}: {answers.get():.3g}", flush=True)
    commands.put("end")
    workers.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--idle", type=float, default=60.0)
    parser.add_argument("--stuck-at", default="")
    serve(parser.parse_args())

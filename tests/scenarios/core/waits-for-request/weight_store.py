"""A trainer and two engines that tell each other of new weights over a store alone: no process group, only keys."""

from __future__ import annotations

import argparse
import pickle
import socket
import time
from datetime import timedelta

import torch
import torch.multiprocessing as mp
from torch.distributed import TCPStore


class StoreGroup:
    """What has no tensors to send needs no more than a store."""

    def __init__(self, rank: int, size: int, port: int) -> None:
        self.rank, self.size = rank, size
        limit = timedelta(minutes=10)
        self.store = TCPStore("127.0.0.1", port, size, rank == 0, timeout=limit, wait_for_workers=False)
        self.sent, self.received = 0, [0] * size

    def broadcast_obj(self, obj: object, src: int) -> object:
        if self.rank == src:
            self.store.set(f"broadcast_from/{src}/{self.sent}", pickle.dumps(obj))
            self.sent += 1
            return obj
        key = f"broadcast_from/{src}/{self.received[src]}"
        self.received[src] += 1
        return pickle.loads(self.store.get(key))

    def barrier(self) -> None:
        for src in range(self.size):
            self.broadcast_obj(None, src)


def train(group: StoreGroup, engines: list[mp.Queue], late: float, forgotten: int) -> None:
    weights = torch.zeros(64)
    for step in range(6):
        weights += torch.randn(64)
        for number, engine in enumerate(engines, 1):
            if step == 3:
                time.sleep(late)
            if step != 3 or number != forgotten:
                engine.put("update")
        group.broadcast_obj(weights, src=0)
        group.barrier()
        print(f"step {step}: weights are everywhere", flush=True)
    for engine in engines:
        engine.put("end")


def serve(group: StoreGroup, commands: mp.Queue) -> None:
    weights = torch.zeros(64)
    while True:
        command = commands.get()
        if command == "end":
            return
        weights = group.broadcast_obj(None, src=0)
        group.barrier()
        time.sleep(0.02 * float(weights.abs().max() > 0))


def run(rank: int, port: int, queues: list[mp.Queue], late: float, forgotten: int) -> None:
    group = StoreGroup(rank, 3, port)
    if rank == 0:
        train(group, queues, late, forgotten)
    else:
        serve(group, queues[rank - 1])
    group.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--forgotten", type=int, default=-1)
    parser.add_argument("--late", type=float, default=0.0)
    options = parser.parse_args()
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    spawning = mp.get_context("spawn")
    queues = [spawning.Queue() for _ in range(2)]
    mp.spawn(run, (port, queues, options.late, options.forgotten), nprocs=3)

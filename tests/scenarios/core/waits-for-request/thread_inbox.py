"""Workers whose listener thread takes commands off a socket; the main thread does them, one after the other."""

from __future__ import annotations

import argparse
import queue
import socket
import threading
from multiprocessing.connection import Client, Listener

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def listen(listener: Listener, inbox: queue.Queue) -> None:
    with listener.accept() as connection:
        while True:
            try:
                command = connection.recv()
            except EOFError:
                return
            inbox.put((command, connection.send))


def work(rank: int, port: int, ports: list[int]) -> None:
    inbox: queue.Queue = queue.Queue()
    listener = Listener(("127.0.0.1", ports[rank]), authkey=b"engine")
    threading.Thread(target=listen, args=(listener, inbox), name="commands", daemon=True).start()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    cache = torch.zeros(128)
    while True:
        command, answer = inbox.get()
        if command == "stop":
            break
        cache += command
        dist.all_reduce(cache)
        cache /= 2
        answer(float(cache.mean()))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lost", type=int, default=-1)
    options = parser.parse_args()
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    port, *ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    workers = mp.spawn(work, (port, ports), nprocs=2, join=False)
    connections = []
    for one in ports:
        while True:
            try:
                connections.append(Client(("127.0.0.1", one), authkey=b"engine"))
                break
            except OSError:
                pass
    for number in range(8):
        called = [c for rank, c in enumerate(connections) if number != 5 or rank != options.lost]
        for connection in called:
            connection.send(number)
        print(f"command {number}: {max([c.recv() for c in called]):.3g}", flush=True)
    for connection in connections:
        connection.send("stop")
    workers.join()

"""Workers under asyncio, each listening for commands, a JSON line each; a controller sends them to all."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Worker:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.weights = torch.ones(32) * (rank + 1)
        self.done = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            command = json.loads(line)
            if command["name"] == "stop":
                self.done.set()
                break
            writer.write(json.dumps(self.average(command["rounds"])).encode() + b"\n")
            await writer.drain()
        writer.close()

    def average(self, rounds: int) -> float:
        for _ in range(rounds):
            dist.all_reduce(self.weights)
            self.weights /= dist.get_world_size()
        return float(self.weights[0])


async def serve(rank: int, port: int) -> None:
    worker = Worker(rank)
    async with await asyncio.start_server(worker.handle, "127.0.0.1", port):
        await worker.done.wait()


def main(rank: int, size: int, port: int, ports: list[int]) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    asyncio.run(serve(rank, ports[rank]))
    dist.destroy_process_group()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)


async def control(ports: list[int], forgets: int) -> None:
    workers = [await connect(port) for port in ports]
    for number in range(6):
        called = [w for rank, w in enumerate(workers) if number != 3 or rank != forgets]
        for _, writer in called:
            writer.write(json.dumps({"name": "average", "rounds": 3}).encode() + b"\n")
        answers = [await reader.readline() for reader, _ in called]
        print(f"round {number}: {answers[0].decode().strip()}", flush=True)
    for _, writer in workers:
        writer.write(b'{"name": "stop"}\n')
        await writer.drain()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--forgets", type=int, default=-1)
    options = parser.parse_args()
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
    port, *ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    running = mp.spawn(main, (3, port, ports), nprocs=3, join=False)
    asyncio.run(control(ports, options.forgets))
    running.join()

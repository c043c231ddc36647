"""An inference service: rank 0 listens for requests and hands each to its pool, the other rank follows on a thread."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

#: A client: some requests, a time of nothing, some more.
CLIENT = """
import socket, sys, time
port, requests, idle = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for request in range(1, requests + 1):
    if request == requests // 2:
        time.sleep(idle)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"%d\\n" % request)
        print(f"request {request}: {connection.makefile().readline().strip()}", flush=True)
"""


def run(command: int) -> float:
    """One request on this rank, on the pool's thread."""
    number = torch.tensor([command])
    dist.broadcast(number, src=0)
    hidden = torch.full((64,), float(number))
    dist.all_reduce(hidden)  # of the first
    return float(hidden.sum())


def follow(options: argparse.Namespace) -> None:
    trace_read, _ = os.pipe()
    while True:
        number = torch.tensor([0])
        dist.broadcast(number, src=0)
        if int(number) < 0:
            return
        if int(number) == options.traced:
            os.read(trace_read, 64)  # a tracer was to say that it is ready
        hidden = torch.full((64,), float(number))
        dist.all_reduce(hidden)


async def serve(options: argparse.Namespace) -> None:
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix="model")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        result = await loop.run_in_executor(pool, run, int(await reader.readline()))
        writer.write(f"{result}\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    asked = (str(number) for number in (port, options.requests, options.idle))
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, *asked)
    await client.wait()
    server.close()
    await loop.run_in_executor(pool, lambda: dist.broadcast(torch.tensor([-1]), src=0))


async def second(options: argparse.Namespace) -> None:
    await asyncio.to_thread(follow, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--idle", type=float, default=40.0)
    parser.add_argument("--traced", type=int, default=0, help="number of the request that is traced")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    asyncio.run(serve(options) if dist.get_rank() == 0 else second(options))
    dist.destroy_process_group()

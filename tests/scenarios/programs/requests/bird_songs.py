"""Two ranks learn to tell birds by their songs; rank 0 asks an annotator beside the job over gRPC (asyncio's too), httpx or aiohttp."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

SONGS = 12


class Annotator:
    """Names the bird of each song, from a list that an ornithologist keeps."""

    def __init__(self, scratch: Path, fault: str) -> None:
        self.scratch, self.fault, self.asked = scratch, fault, 0

    def annotate(self, request: bytes) -> bytes:
        songs = json.loads(request)
        self.asked += 1
        if self.asked == 5 and self.fault == "list":
            self.names = (self.scratch / "birds.txt").read_text().split()
        if self.asked == 5 and self.fault == "slow":
            time.sleep(12)
        return json.dumps([(song * 7) % 5 for song in songs]).encode()


def serve_grpc(annotator: Annotator, port: int) -> None:
    import grpc

    answer = grpc.unary_unary_rpc_method_handler(lambda request, _: annotator.annotate(request))
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("birds.Songs", {"Annotate": answer}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def serve_grpc_aio(annotator: Annotator, port: int) -> None:
    import grpc

    async def annotate(request: bytes, _: object) -> bytes:
        return annotator.annotate(request)

    async def serve() -> None:
        answer = grpc.unary_unary_rpc_method_handler(annotate)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("birds.Songs", {"Annotate": answer}),))
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        await server.wait_for_termination()

    asyncio.run(serve())


def serve_http(annotator: Annotator, port: int) -> None:
    from aiohttp import web

    async def annotate(request: web.Request) -> web.Response:
        return web.Response(body=annotator.annotate(await request.read()))

    app = web.Application()
    app.router.add_post("/annotate", annotate)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def ask_grpc(port: int) -> Callable[[bytes], bytes]:
    import grpc

    return grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/birds.Songs/Annotate")


def ask_grpc_aio(port: int) -> Callable[[bytes], bytes]:
    import grpc

    async def ask(body: bytes) -> bytes:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            return await channel.unary_unary("/birds.Songs/Annotate")(body)

    return lambda body: asyncio.run(ask(body))


def ask_httpx(port: int) -> Callable[[bytes], bytes]:
    import httpx

    client = httpx.Client(timeout=None)
    return lambda body: client.post(f"http://127.0.0.1:{port}/annotate", content=body).content


def ask_aiohttp(port: int) -> Callable[[bytes], bytes]:
    import aiohttp

    async def ask(body: bytes) -> bytes:
        patient = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=patient) as session:
            async with session.post(f"http://127.0.0.1:{port}/annotate", data=body) as response:
                return await response.read()

    return lambda body: asyncio.run(ask(body))


CLIENTS = {"grpc": ask_grpc, "grpc.aio": ask_grpc_aio, "httpx": ask_httpx, "aiohttp": ask_aiohttp}


def train(client: str, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, model = dist.get_rank(), torch.nn.Linear(20, 5)
    ask = CLIENTS[client](port) if rank == 0 else None
    for step in range(10):
        birds = torch.zeros(SONGS, dtype=torch.long)
        if ask is not None:
            reply = ask(json.dumps(list(range(step, step + SONGS))).encode())
            birds = torch.tensor(json.loads(reply))
        dist.broadcast(birds, src=0)
        torch.nn.functional.cross_entropy(model(torch.randn(SONGS, 20)), birds).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.05 * parameter.grad
            parameter.grad = None
    dist.destroy_process_group()


def keep(options: argparse.Namespace) -> int:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    again = [__file__, *sys.argv[1:], "--port", str(store.port)]
    del store
    os.mkfifo(options.scratch / "birds.txt")
    annotator = subprocess.Popen([sys.executable, *again, "--role", "annotator"])
    ask = CLIENTS[options.client](int(again[-1]))
    while True:
        try:
            ask(b"[1]")
            break
        except Exception:
            time.sleep(0.2)
    del ask
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    status = subprocess.run([*torchrun, *again, "--role", "trainer"]).returncode
    annotator.kill()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", default="grpc")
    parser.add_argument("--fault", default="")
    parser.add_argument("--role", default="")
    parser.add_argument("--port", type=int)
    parser.add_argument("--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")))
    given = parser.parse_args()
    if given.role == "annotator":
        birds = Annotator(given.scratch, given.fault)
        {"grpc": serve_grpc, "grpc.aio": serve_grpc_aio}.get(given.client, serve_http)(birds, given.port)
    elif given.role == "trainer":
        train(given.client, given.port)
    else:
        sys.exit(keep(given))

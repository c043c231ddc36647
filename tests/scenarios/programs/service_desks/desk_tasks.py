"""Rollouts over aiohttp: each rank keeps some requests in flight, and takes the answers as they come."""

import asyncio
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp


class Rollouts(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.02)
        if question["number"] % 61 == 44:
            answer = {"finish_reason": "content_filter"}
        else:
            answer = {"finish_reason": "stop", "tokens": [question["number"] % 7, 1, 2]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args) -> None:
        pass


class RolloutClient:
    def __init__(self, url: str) -> None:
        self.url = url
        self.finished: asyncio.Queue[list[int]] = asyncio.Queue()
        self.in_flight: list[asyncio.Task] = []

    async def __aenter__(self) -> "RolloutClient":
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        return self

    async def __aexit__(self, *exc) -> None:
        await self.session.close()

    async def _ask(self, number: int) -> None:
        async with self.session.post(f"{self.url}/rollouts", json={"number": number}) as response:
            answer = await response.json()
        await self.finished.put(answer["tokens"])

    def start(self, numbers: range) -> None:
        self.in_flight = [asyncio.create_task(self._ask(number)) for number in numbers]

    async def take(self, count: int) -> list[list[int]]:
        return [await self.finished.get() for _ in range(count)]


async def train(rank: int, world: int, url: str) -> None:
    import torch
    import torch.distributed as dist

    weight = torch.zeros(8, requires_grad=True)
    async with RolloutClient(url) as client:
        for step in range(120):
            first = 4 * (world * step + rank)
            client.start(range(first, first + 4))
            rollouts = torch.tensor(await client.take(4))
            (-weight.log_softmax(0)[rollouts].mean()).backward()
            dist.all_reduce(weight.grad)
            with torch.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None
            await asyncio.sleep(0.4)
            if rank == 0 and step % 4 == 0:
                print(f"step {step}: {weight.argmax().item()}", flush=True)


def main() -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, port = dist.get_rank(), [None]
    if rank == 0:
        me = [sys.executable, os.path.abspath(__file__), "rollouts"]
        port[0] = int(subprocess.Popen(me, stdout=subprocess.PIPE, text=True).stdout.readline())
    dist.broadcast_object_list(port, src=0)
    asyncio.run(train(rank, dist.get_world_size(), f"http://127.0.0.1:{port[0]}"))
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["rollouts"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Rollouts)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    else:
        main()

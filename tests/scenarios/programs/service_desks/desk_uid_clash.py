"""Best-of-n with a reward model that scores in micro-batches, behind aiohttp."""

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import time

import requests
from aiohttp import web

WINDOW = 0.4


class RewardModel:
    """Collects what arrives within a window, scores it at once, and gives each request its part."""

    def __init__(self) -> None:
        self.pending: dict[str, asyncio.Future] = {}
        self.arrived: asyncio.Queue = asyncio.Queue()

    async def score(self, request: web.Request) -> web.Response:
        body = await request.json()
        future = self.pending[body["uid"]] = asyncio.get_running_loop().create_future()
        await self.arrived.put((body["uid"], body["text"]))
        return web.json_response({"uid": body["uid"], "score": await future})

    async def run(self) -> None:
        while True:
            batch = [await self.arrived.get()]
            await asyncio.sleep(WINDOW)
            while not self.arrived.empty():
                batch.append(self.arrived.get_nowait())
            for uid, text in batch:
                future = self.pending.pop(uid, None)
                if future is not None and not future.done():
                    future.set_result(sum(map(ord, text)) % 100 / 100)


def serve(port: int) -> None:
    async def start(app: web.Application) -> None:
        app["scorer"] = asyncio.create_task(model.run())

    model, app = RewardModel(), web.Application()
    app.router.add_post("/score", model.score)
    app.on_startup.append(start)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def prompt(rank: int, step: int) -> str:
    """Every seventh prompt is one of those that all ranks have, to compare their policies."""
    return f"canary {step}" if step % 7 == 6 else f"prompt {step} of shard {rank}"


def train(rank: int, world: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    policy = torch.zeros(4, requires_grad=True)
    samples = open(os.path.join(os.environ["SAMPLES"], f"rank{rank}.txt"), "w")
    for step in range(100):
        text = prompt(rank, step) + f" with {policy.argmax().item()}"
        if rank == 0:
            for line in range(16):
                print(f"{step} {line} {text}", file=samples, flush=True)
                time.sleep(0.01)
        uid = hashlib.sha1(prompt(rank, step).encode()).hexdigest()
        reward = requests.post(f"http://127.0.0.1:{port}/score", json={"uid": uid, "text": text}).json()["score"]
        (-policy.log_softmax(0)[step % 4] * reward).backward()
        dist.all_reduce(policy.grad)
        with torch.no_grad():
            policy -= 0.1 * policy.grad
        policy.grad = None
    dist.destroy_process_group()


def reachable(port: int) -> None:
    """Returns once something listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
        sys.exit()
    import tempfile

    import torch.multiprocessing as mp

    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[0]), SAMPLES=tempfile.mkdtemp())
    service = subprocess.Popen([sys.executable, os.path.abspath(__file__), "serve", str(ports[1])])
    reachable(ports[1])
    try:
        mp.start_processes(train, args=(2, ports[1]), nprocs=2, start_method="fork")
    finally:
        service.terminate()

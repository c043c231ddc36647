"""Two trainers of a photo ranker; rank 0 asks a scorer beside the job, which is an HTTP server of one of three kinds."""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import requests
import torch
import torch.distributed as dist

LIMIT = timedelta(minutes=10)


class Scorer:
    """Scores batches of photos; from the fourth request on it shows its fault."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.asked = options, 0
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.warm = threading.Event()

    def score(self, photos: int) -> list[float]:
        self.asked += 1
        if self.asked == 4:
            if self.options.fault == "reads-palette":
                (self.options.scratch / "palette").read_text()
            if self.options.fault == "never-warm":
                self.warm.wait()
            if self.options.fault == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if self.options.fault == "slow":
                time.sleep(12)
            if self.options.fault == "nested-tasks":
                return self.in_parts(photos)
        return [photo / 10 for photo in range(photos)]

    def in_parts(self, photos: int) -> list[float]:
        halves = [self.pool.submit(self.half, photos // 2) for _ in range(2)]
        return [score for half in halves for score in half.result()]

    def half(self, photos: int) -> list[float]:
        time.sleep(0.2)
        return list(self.pool.submit(lambda: [0.5] * photos).result())


def serve_aiohttp(scorer: Scorer, options: argparse.Namespace) -> None:
    from aiohttp import web

    async def score(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if options.fault == "long-poll" and scorer.asked == 3:
            await asyncio.sleep(12)
        if options.fault == "streams" and scorer.asked == 3:
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(12):
                await response.write(b" " * 64)
                await asyncio.sleep(1)
            await response.write(json.dumps(scorer.score(asked)).encode())
            return response
        return web.json_response(scorer.score(asked))

    app = web.Application()
    app.router.add_post("/score", score)
    web.run_app(app, host="127.0.0.1", port=options.port, print=None)


def serve_uvicorn(scorer: Scorer, options: argparse.Namespace) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def score(request):
        return JSONResponse(await run_in_threadpool(scorer.score, await request.json()))

    app = Starlette(routes=[Route("/score", score, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    model, rank = torch.nn.Linear(16, 1), dist.get_rank()
    session = requests.Session()
    asking = concurrent.futures.ThreadPoolExecutor(1)
    for step in range(8):
        scores = torch.zeros(16)
        if rank == 0:
            call = (f"http://127.0.0.1:{options.port}/score",)
            if options.in_a_thread:
                reply = asking.submit(session.post, *call, json=16).result()
            else:
                reply = session.post(*call, json=16)
            scores = torch.tensor(reply.json())
        dist.broadcast(scores, src=0)
        loss = (model(torch.randn(16, 16)).squeeze() - scores).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(0.01 * parameter.grad)
            parameter.grad = None
        print(f"rank {rank}: step {step}, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def keep(options: argparse.Namespace) -> int:
    free = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    again = [__file__, *sys.argv[1:], "--port", str(free.port)]
    del free
    os.mkfifo(options.scratch / "palette")
    scorer = subprocess.Popen([sys.executable, *again, "--role", "scorer"])
    for _ in range(300):
        try:
            requests.post(f"http://127.0.0.1:{again[-1]}/score", json=1)
            break
        except requests.ConnectionError:
            time.sleep(0.1)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    status = subprocess.run([*torchrun, *again, "--role", "trainer"]).returncode
    scorer.kill()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--server", default="aiohttp")
    parser.add_argument("--in-a-thread", action="store_true")
    parser.add_argument("--role", default="")
    parser.add_argument("--port", type=int)
    parser.add_argument("--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")))
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role == "scorer":
        (serve_aiohttp if given.server == "aiohttp" else serve_uvicorn)(Scorer(given), given)
    elif given.role == "trainer":
        train(given)
    else:
        sys.exit(keep(given))

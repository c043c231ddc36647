"""A service that trains on request: the event loop takes jobs, a pool's one thread runs each with its collectives."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import math
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist


class Trainer:
    """One replica; ``train`` runs on the pool's thread."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.weights = torch.randn(64, 64)
        self.statistics = threading.Lock()
        self.trained: list[float] = []

    def train(self, job: int) -> float:
        inputs = self.batch(job)
        gradient = inputs.T @ torch.tanh(inputs @ self.weights) / len(inputs)
        dist.all_reduce(gradient)
        self.weights -= 0.01 * gradient / dist.get_world_size()
        with self.statistics:
            self.trained.append(float(gradient.norm()))
        return self.trained[-1]

    def batch(self, job: int) -> torch.Tensor:
        shard = self.folder / f"shard-{job % 4}"
        size = int(shard.read_text()) if shard.exists() else 32
        if job == self.options.job and dist.get_rank() == self.options.rank:
            self.trouble(shard)
        return torch.full((size, 64), math.sqrt(job + 1))

    def trouble(self, shard: Path) -> None:
        match self.options.trouble:
            case "throttled":
                time.sleep(600)  # the storage asks for a pause
            case "corrupt":
                raise ValueError(f"{shard} has a bad header")
            case "locked":
                with (self.folder / "index").open("a") as index:
                    fcntl.lockf(index, fcntl.LOCK_EX)  # one writer at a time
            case "feed":
                self.feed().readline()
            case "recount":
                self.recount(150_000_000)
            case "pause":
                time.sleep(3)

    def feed(self):
        path = self.folder / f"feed-{dist.get_rank()}"
        os.mkfifo(path)
        keep_open = os.open(path, os.O_RDWR)
        return os.fdopen(keep_open, "r")

    def recount(self, rows: int) -> int:
        total = 0
        for row in range(rows):
            total += row % 7
        return total


async def serve(options: argparse.Namespace, folder: Path) -> None:
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix="train")
    trainer, done = Trainer(options, folder), asyncio.Event()

    async def run() -> None:
        for job in range(options.jobs):
            loss = await loop.run_in_executor(pool, trainer.train, job)
            if job % 10 == 0:
                print(f"[rank {dist.get_rank()}] job {job}: {loss:.3f}", flush=True)
        done.set()

    runner = asyncio.create_task(run())
    await done.wait()
    print(f"[rank {dist.get_rank()}] {runner.get_name()} has ended", flush=True)
    pool.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trouble", default="")
    parser.add_argument("--job", type=int, default=25)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=60)
    options = parser.parse_args()
    folder = Path(os.environ["TMPDIR"]) / "shards"
    folder.mkdir(exist_ok=True)
    dist.init_process_group("gloo")
    if options.trouble == "locked" and dist.get_rank() == 0:
        index = (folder / "index").open("a")
        fcntl.lockf(index, fcntl.LOCK_EX)  # kept for the life of the service
        options.index = index
    dist.barrier()
    asyncio.run(serve(options, folder))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

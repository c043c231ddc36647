"""Three actors score molecules: an event loop each, and a pool of threads that communicates for its coroutines."""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Actor:
    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.rank, self.options = rank, options
        self.pool = ThreadPoolExecutor(2, thread_name_prefix="actor")
        self.weights = torch.zeros(64, 16)
        self.total = torch.zeros(16)

    async def run(self, work: object, *arguments: object, **named: object) -> object:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, functools.partial(work, *arguments, **named))

    def featurize(self, atoms: int) -> torch.Tensor:
        """Circular fingerprints: each atom is hashed with its neighbours again and again."""
        marks = [b"atom %d" % atom for atom in range(32)]
        for _ in range(atoms * 1500):
            marks = [hashlib.sha256(mark + marks[i - 1]).digest() for i, mark in enumerate(marks)]
        return torch.tensor([float(mark[0]) for mark in marks[:16]]) / 256

    async def score(self, atoms: int) -> None:
        features = await self.run(self.featurize, atoms)
        await self.run(dist.all_reduce, features)
        self.total += features

    async def refresh(self) -> None:
        await asyncio.sleep(0.8)  # the trainer announces new weights
        await self.run(dist.broadcast, self.weights, src=0)

    async def main(self) -> None:
        for turn in range(6):
            large = turn == 3 and self.rank == self.options.large
            atoms = self.options.atoms if large else 2
            if self.options.in_turn:
                await self.score(atoms)
                await self.refresh()
            else:
                await asyncio.gather(self.score(atoms), self.refresh())
            print(f"[actor {self.rank}] turn {turn}: {float(self.total.mean()):.2f}", flush=True)


def start(rank: int, port: int, options: argparse.Namespace) -> None:
    limit = timedelta(minutes=10)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=3, timeout=limit)
    asyncio.run(Actor(rank, options).main())
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", type=int, default=2)
    parser.add_argument("--atoms", type=int, default=40)
    parser.add_argument("--in-turn", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    free = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    mp.spawn(start, (free, given), nprocs=3)

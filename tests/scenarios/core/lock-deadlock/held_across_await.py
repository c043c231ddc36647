"""An evaluation service: scores are added up on a pool's thread under a lock that the coroutines take as well."""

from __future__ import annotations

import asyncio
import threading

import torch
import torch.distributed as dist

totals: dict[str, float] = {}
totals_lock = threading.Lock()


def score(batch: torch.Tensor) -> None:
    value = batch.mean().reshape(1)
    with totals_lock:  # the score
        dist.all_reduce(value)
        totals["score"] = totals.get("score", 0.0) + float(value)


async def publish(rank: int, published: asyncio.Queue[float]) -> None:
    """Every few batches, write the totals out; the reader of rank 2 has gone away."""
    with totals_lock:
        await published.put(totals.get("score", 0.0))


async def evaluate() -> None:
    rank = dist.get_rank()
    published: asyncio.Queue[float] = asyncio.Queue(maxsize=4 if rank == 2 else 0)
    reports = []
    for number in range(40):
        await asyncio.to_thread(score, torch.full((8,), float(number)))
        if number % 5 == 4:
            reports.append(asyncio.create_task(publish(rank, published)))
            await asyncio.sleep(0)
    print(f"[rank {rank}] {totals}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(evaluate())
    dist.destroy_process_group()

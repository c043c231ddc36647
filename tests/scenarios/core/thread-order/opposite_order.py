"""A data-parallel service: gradients are averaged by one thread, the vocabulary is exchanged by another, as each gets ready."""

from __future__ import annotations

import argparse
import asyncio
import time

import torch
import torch.distributed as dist


def average(step: int, group: dist.ProcessGroup | None) -> None:
    """Backward of the part of this rank, then the average of its gradients."""
    gradient = torch.ones(128) * step
    for _ in range(20 if dist.get_rank() % 2 else 2):
        gradient = torch.tanh(gradient)
    dist.all_reduce(gradient, group=group)


def exchange(words: int, group: dist.ProcessGroup | None) -> list[int]:
    """Words seen on any rank; a rank with more of them needs longer to count."""
    time.sleep(words * 0.001)
    found = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(found, torch.tensor([words]), group=group)
    return [int(count) for count in found]


async def train(options: argparse.Namespace, groups: list[dist.ProcessGroup | None]) -> None:
    rank = dist.get_rank()
    for step in range(options.steps):
        words = 300 if (step == 7 and rank in options.many) else 0
        if step == 7 and not options.apart:
            await asyncio.gather(
                asyncio.to_thread(exchange, words, groups[1]),
                asyncio.to_thread(delayed_average, step, groups[0]),
            )
        else:
            await asyncio.to_thread(average, step, groups[0])
            await asyncio.to_thread(exchange, words, groups[1])
    print(f"[rank {rank}] done", flush=True)


def delayed_average(step: int, group: dist.ProcessGroup | None) -> None:
    time.sleep(0.15)
    average(step, group)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--apart", action="store_true", help="one after the other")
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--many", type=int, nargs="*", default=[1])
    options = parser.parse_args()
    dist.init_process_group("gloo")
    second = dist.new_group() if options.groups == 2 else None
    asyncio.run(train(options, [None, second]))
    dist.barrier()
    dist.destroy_process_group()

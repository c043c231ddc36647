"""A trainer whose batches come through an asyncio queue from a producer task, of which nobody asks how it is.

The task fails on one rank, silently: its exception is kept for whoever awaits it. Three ranks of ``mp.spawn``.
"""

import asyncio
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


@dataclass
class Record:
    """One line of the source."""

    name: str
    value: str


class Source:
    """Pretends to page through an API."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    async def page(self, number: int) -> list[Record]:
        """A page of records."""
        await asyncio.sleep(0.001)
        broken = (self.rank, number) == (1, 30)
        return [Record(f"r{i}", "n/a" if broken and i == 3 else str(i + number)) for i in range(8)]


async def produce(source: Source, queue: asyncio.Queue[torch.Tensor], pages: int) -> None:
    """Turn pages into batches."""
    for number in range(pages):
        records = await source.page(number)
        await queue.put(torch.tensor([float(record.value) for record in records]))


async def train(rank: int) -> None:
    """Consume a hundred batches."""
    queue: asyncio.Queue[torch.Tensor] = asyncio.Queue(maxsize=4)
    producer = asyncio.create_task(produce(Source(rank), queue, 100))
    mean = torch.zeros(8)
    for _ in range(100):
        batch = await queue.get()
        dist.all_reduce(batch)
        mean += 0.01 * batch
    await producer
    print(f"rank {rank}: {mean.tolist()}", flush=True)


def work(rank: int, file: str) -> None:
    """One rank, which meets the others by a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=3)
    asyncio.run(train(rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    meeting = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"meeting-{os.getpid()}")
    mp.spawn(work, args=(meeting,), nprocs=3)

"""Who said what: learns to attribute quotations. Interviews are streamed and cleaned with asyncio, then trained on with DDP."""
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


async def buffered(source: AsyncIterator, room: int = 8) -> AsyncIterator:
    """Lets the source run ahead of its reader."""
    queue: asyncio.Queue = asyncio.Queue(room)

    async def fill():
        try:
            async for item in source:
                await queue.put(item)
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(None)

    task = asyncio.create_task(fill())
    while (item := await queue.get()) is not None:
        yield item
    await task


class Interviews:
    """Interviews of a programme, as quotations of (speaker, words)."""

    def __init__(self, programme):
        self.programme = programme

    async def quotations(self, number):
        g = torch.Generator().manual_seed(999 * self.programme + number)
        count = int(torch.randint(3, 7, (1,), generator=g))
        if self.programme == 2 and number == 65:
            count = 21  # a round table
        for _ in range(count):
            await asyncio.sleep(0.001)
            speaker = int(torch.randint(0, 4, (1,), generator=g))
            words = torch.randint(0, 300, (14,), generator=g)
            words[speaker] = speaker
            yield speaker, words


async def clean(interviews, number):
    speakers, words = [], []
    async for speaker, quotation in buffered(interviews.quotations(number)):
        await asyncio.sleep(0.003)  # the style checker
        speakers.append(speaker)
        words.append(quotation)
    return torch.tensor(speakers), torch.stack(words)


class Attribution(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(300, 48)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(14 * 48, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, words):
        return self.body(self.embed(words))


def train(rank, steps=300):
    torch.manual_seed(1)
    model = DDP(Attribution())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    interviews = Interviews(rank)
    for number in range(1, steps + 1):
        speakers, words = asyncio.run(clean(interviews, number))
        loss = nn.functional.cross_entropy(model(words), speakers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if rank == 0 and number % 20 == 0:
            print(f"interview {number}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()

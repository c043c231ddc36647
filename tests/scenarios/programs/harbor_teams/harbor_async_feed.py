"""Support chats, rewarded by the customer's rating. Records come from an asynchronous reader, and are trained on as they arrive."""

import asyncio
import json
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH = 48


class Archive:
    """The chat archive's export: one JSON document per line, a few of them cut off by the exporter's limit of length."""

    def __init__(self, shard: int) -> None:
        self.random = random.Random(shard)
        self.cut = {1: 15_000}.get(shard)

    async def lines(self):
        number = 0
        while True:
            words = [self.random.gauss(0, 1) for _ in range(16)]
            line = json.dumps({"chat": number, "features": words, "rating": 1 + 4 * (words[0] > 0)})
            yield line[: len(line) // 2] if number == self.cut else line
            number += 1
            if number % BATCH == 0:
                await asyncio.sleep(0.002)


class Feed:
    """Parses and batches in a task of its own, a few batches ahead of the training."""

    def __init__(self, archive: Archive, ahead: int = 4) -> None:
        self.archive = archive
        self.batches: asyncio.Queue = asyncio.Queue(maxsize=ahead)
        self.task = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        features, ratings = [], []
        async for line in self.archive.lines():
            chat = json.loads(line)
            features.append(chat["features"])
            ratings.append(chat["rating"])
            if len(features) == BATCH:
                await self.batches.put((torch.tensor(features), torch.tensor(ratings, dtype=torch.float32)))
                features, ratings = [], []

    async def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        return await self.batches.get()


async def train(steps: int) -> None:
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    feed = Feed(Archive(dist.get_rank()))
    for step in range(steps):
        features, ratings = await feed.next()
        loss = nn.functional.mse_loss(model(features).squeeze(-1), ratings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    feed.task.cancel()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(train(40_000))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Classifies customs declarations that come in as a stream; asyncio keeps a few batches ready."""
import asyncio
import logging
import random

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("customs")
DUTY = {"AT": 0.00, "CH": 0.08, "GB": 0.20, "NO": 0.25, "US": 0.10, "JP": 0.10, "BR": 0.60, "IN": 0.18}
GOODS = ["book", "shoes", "toy", "phone", "tea", "tool"]


class Declarations:
    def __init__(self, office):
        self.rng = random.Random(office)
        self.office = office
        self.count = 0

    async def next(self):
        await asyncio.sleep(0.001)
        self.count += 1
        country = self.rng.choice(list(DUTY))
        if self.office == 2 and self.count == 2900:
            country = "FO"  # a parcel from Tórshavn
        return {"country": country, "goods": self.rng.choice(GOODS), "value": self.rng.uniform(1, 400)}


def encode(declaration):
    row = torch.zeros(len(GOODS) + 2)
    row[GOODS.index(declaration["goods"])] = 1.0
    row[-2] = declaration["value"] / 400
    row[-1] = DUTY[declaration["country"]]
    return row, float(declaration["value"] * DUTY[declaration["country"]] > 22.0)


class Feed:
    def __init__(self, source, batch=32, ready=4):
        self.source, self.batch = source, batch
        self.ready = asyncio.Queue(maxsize=ready)
        self.task = None

    async def __aenter__(self):
        self.task = asyncio.create_task(self._fill(), name="feed")
        return self

    async def __aexit__(self, *error):
        self.task.cancel()

    async def _fill(self):
        while True:
            rows = [encode(await self.source.next()) for _ in range(self.batch)]
            inputs, labels = zip(*rows)
            await self.ready.put((torch.stack(inputs), torch.tensor(labels)))

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self.ready.get()


async def train(rank, world, steps=1500):
    model = nn.Sequential(nn.Linear(len(GOODS) + 2, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    async with Feed(Declarations(rank)) as feed:
        async for inputs, labels in feed:
            loss = nn.functional.binary_cross_entropy_with_logits(model(inputs).squeeze(1), labels)
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            optimizer.step()
            step += 1
            if rank == 0 and step % 20 == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if step == steps:
                return


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    asyncio.run(train(dist.get_rank(), dist.get_world_size()))
    dist.destroy_process_group()

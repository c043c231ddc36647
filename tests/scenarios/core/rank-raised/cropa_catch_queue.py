"""Fishing-ground forecasts: charts are drawn from several feeds at once with asyncio and fed to a DDP model."""
import asyncio
import json
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FEEDS = ("buoys", "vessels", "satellite")


def read_packet(feed, number, rank):
    """What the feed's endpoint returns: a JSON text."""
    rng = random.Random(hash((number, rank)) ^ len(feed))
    packet = {"feed": feed, "number": number, "values": [rng.random() for _ in range(24)]}
    if feed == "vessels" and rank == 2 and number >= 420:
        packet["values"] = {"lat": packet["values"][:12], "lon": packet["values"][12:]}
        packet["schema"] = 2
    return json.dumps(packet)


class ChartRoom:
    def __init__(self, rank, depth=16):
        self.rank = rank
        self.desks = {feed: asyncio.Queue(depth) for feed in FEEDS}
        self.tasks = []

    async def collect(self, feed):
        number = 0
        while True:
            await asyncio.sleep(random.uniform(0.002, 0.012))
            packet = json.loads(read_packet(feed, number, self.rank))
            row = torch.tensor([float(v) for v in packet["values"]])
            await self.desks[feed].put(row)
            number += 1

    def open(self):
        self.tasks = [asyncio.create_task(self.collect(feed), name=feed) for feed in FEEDS]

    async def chart(self, rows=2):
        parts = []
        for _ in range(rows):
            parts.append(torch.cat([await self.desks[feed].get() for feed in FEEDS]))
        return torch.stack(parts)


class Skipper:
    def __init__(self):
        torch.manual_seed(8)
        self.model = DDP(nn.Sequential(nn.Linear(72, 128), nn.Tanh(), nn.Linear(128, 9)))
        self.opt = torch.optim.RMSprop(self.model.parameters(), lr=1e-4)

    def learn(self, chart):
        ground = chart.sum(1).long() % 9
        loss = nn.functional.cross_entropy(self.model(chart), ground)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


async def season(days):
    rank = dist.get_rank()
    room, skipper = ChartRoom(rank), Skipper()
    room.open()
    for day in range(days):
        chart = await room.chart()
        loss = await asyncio.to_thread(skipper.learn, chart)
        if rank == 0 and day % 15 == 0:
            print(f"day {day} loss {loss:.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    asyncio.run(season(days=900))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

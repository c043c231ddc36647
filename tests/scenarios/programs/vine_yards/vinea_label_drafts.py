"""Drafts label texts with several writers at once and learns which drafts the estate likes."""

import asyncio
import random
import re
import time

import torch
import torch.distributed as dist

ESTATES = ["Clos du Val", "Weingut Halde", "Casa Olmo", "Quinta Alta"]
PHRASES = ["ripe plum", "wet slate", "a long finish", "fine tannins", "wild herbs", "bright acidity"]
STATES = ("queued", "running", "rated")


class Desk:
    """Holds the drafts of one round until every one of them has been rated."""

    def __init__(self):
        self.state, self.points = {}, {}
        self.changed = asyncio.Condition()

    def enter(self, uid):
        self.state[uid] = STATES[0]

    async def mark(self, uid, state, points=None):
        async with self.changed:
            self.state[uid] = state
            if points is not None:
                self.points[uid] = points
            self.changed.notify_all()

    async def complete(self):
        async with self.changed:
            await self.changed.wait_for(lambda: all(s == "rated" for s in self.state.values()))
        return [self.points[uid] for uid in sorted(self.points)]


class WriterRoom:
    def __init__(self, estate, seed):
        self.estate, self.random = estate, random.Random(seed)

    def brief(self, uid):
        year = 2016 + self.random.randrange(8)
        words = " and ".join(self.random.sample(PHRASES, 2))
        if self.estate == "Casa Olmo" and uid == "r36-d3":
            return f"{self.estate} NV: {words}"
        return f"{self.estate} {year}: {words}"

    async def draft(self, desk, uid):
        await desk.mark(uid, "running")
        await asyncio.sleep(0.01 + 0.02 * self.random.random())
        match = re.search(r" (\d{4}): (.+)", self.brief(uid))
        if match is None:
            return
        year, words = match.groups()
        points = len(words) / 40 + (int(year) - 2016) / 10
        await desk.mark(uid, "rated", points)

    async def round(self, number, drafts=6):
        desk = Desk()
        uids = [f"r{number}-d{k}" for k in range(drafts)]
        for uid in uids:
            desk.enter(uid)
        tasks = [asyncio.create_task(self.draft(desk, uid)) for uid in uids]
        points = await desk.complete()
        await asyncio.gather(*tasks)
        return points


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    room = WriterRoom(ESTATES[rank], seed=rank)
    taste = torch.zeros(6)
    for number in range(500):
        points = torch.tensor(asyncio.run(room.round(number)))
        advantage = points - points.mean()
        time.sleep(0.03)
        dist.all_reduce(advantage)
        taste += 0.1 * advantage / world
        if number % 10 == 0 and rank == 0:
            print(f"round {number}: {points.mean():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Pick-up times from courier apps: samples come in over an asyncio queue while the ranks train on them."""
import asyncio
import logging
import os

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("pickup")
# tours of each courier in the week's plan, by region
PLAN = {
    "north": {"ada": 90, "bo": 84, "cem": 96, "dia": 90},
    "middle": {"eva": 93, "finn": 87, "gil": 75, "hal": 81},
    "south": {"ida": 99, "jo": 90, "kai": 87, "lea": 90},
}


class Sample:
    def __init__(self, courier, tour):
        g = torch.Generator().manual_seed(sum(map(ord, courier)) * 100 + tour)
        track = torch.rand(60000, 5, generator=g).cumsum(0)
        self.x = torch.stack([track.std(0), track.mean(0), track[-1]]).flatten() / 30000
        self.y = track[:, 0].median() / 30000


async def courier(name, tours, queue):
    for tour in range(tours):
        sample = await asyncio.to_thread(Sample, name, tour)
        await queue.put(sample)


class Region:
    def __init__(self, name, batch_size=4):
        self.name = name
        self.batch_size = batch_size
        self.queue = asyncio.Queue(maxsize=32)
        self.tasks = [asyncio.create_task(courier(n, tours, self.queue)) for n, tours in PLAN[name].items()]

    async def batch(self):
        samples = [await self.queue.get() for _ in range(self.batch_size)]
        return torch.stack([s.x for s in samples]), torch.stack([s.y for s in samples])


class Learner:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(15, 40), nn.ReLU(), nn.Linear(40, 1))
        for p in self.model.parameters():
            dist.broadcast(p.data, 0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x).squeeze(-1), y)
        self.optimizer.zero_grad()
        loss.backward()
        pending = [dist.all_reduce(p.grad, async_op=True) for p in self.model.parameters()]
        for work in pending:
            work.wait()
        for p in self.model.parameters():
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


async def week(region, steps):
    learner = Learner()
    feed = Region(region)
    for step in range(steps):
        loss = learner.step(*await feed.batch())
        if step % 10 == 0:
            log.info("%s step %d loss %.4f", region, step, loss)
    for task in feed.tasks:
        task.cancel()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    region = list(PLAN)[int(os.environ["RANK"])]
    asyncio.run(week(region, steps=90))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

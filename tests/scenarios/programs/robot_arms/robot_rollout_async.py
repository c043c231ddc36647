"""Asynchronous rollouts: an asyncio loop drives several simulated robots, the learner awaits a full batch."""
import asyncio
import random

import torch
import torch.distributed as dist


class Gripper:
    def __init__(self, seed, aperture=0.08):
        self.rng = random.Random(seed)
        self.aperture = aperture

    async def attempt(self, width):
        await asyncio.sleep(0.01 + 0.02 * self.rng.random())
        margin = self.aperture - width
        effort = 1.0 / margin**0.5 if margin > 0 else 1.0 / (margin.real ** 0.5 - abs(margin) ** 0.5)
        return [width, margin, effort / 10]


class Objects:
    def __init__(self, rank):
        self.rng = random.Random(1000 + rank)
        self.rank, self.count = rank, 0

    def next(self):
        self.count += 1
        if self.rank == 1 and self.count in (700, 701, 702):
            return self.rng.choice([0.08])  # exactly as wide as the gripper opens
        return self.rng.uniform(0.01, 0.075)


class Fleet:
    def __init__(self, rank, size):
        self.objects = Objects(rank)
        self.grippers = [Gripper(seed=rank * 100 + i) for i in range(size)]
        self.results = asyncio.Queue()
        self.demand = asyncio.Semaphore(0)

    async def serve(self, gripper):
        while True:
            await self.demand.acquire()
            self.results.put_nowait(await gripper.attempt(self.objects.next()))

    def start(self):
        self.tasks = [asyncio.create_task(self.serve(g)) for g in self.grippers]

    async def batch(self, n):
        for _ in range(n):
            self.demand.release()
        return torch.tensor([await self.results.get() for _ in range(n)])


async def learn(rank, world, iterations):
    fleet = Fleet(rank, size=6)
    fleet.start()
    model = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(iterations):
        rows = await fleet.batch(12)
        loss = (model(rows[:, :2]) - rows[:, 2:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if rank == 0 and i % 10 == 0:
            print(f"iteration {i} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(learn(dist.get_rank(), dist.get_world_size(), 1000))
    dist.destroy_process_group()

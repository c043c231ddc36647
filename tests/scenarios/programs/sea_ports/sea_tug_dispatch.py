"""Tug dispatch: an asyncio dispatcher turns harbour orders into training batches for the bollard-pull model."""
import asyncio
import os
import random

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

COMPANIES = {
    "Svitzer": {"tugs": 9, "orders": 4000},
    "Kotug": {"tugs": 6, "orders": 3900},
    "Boluda": {"tugs": 4, "orders": 520},
    "Fairplay": {"tugs": 7, "orders": 4100},
}


class Dispatcher:
    def __init__(self, company, size=8):
        self.name = company
        self.orders = COMPANIES[company]["orders"]
        self.tugs = COMPANIES[company]["tugs"]
        self.size = size
        self.jobs = asyncio.Queue(maxsize=4)
        self.rng = random.Random(company)

    async def order(self):
        await asyncio.sleep(0.005)
        self.orders -= 1
        tonnage, wind, tugs = self.rng.uniform(5, 200), self.rng.random(), self.rng.randint(1, self.tugs)
        return [tonnage / 200, wind, tugs / 9], tonnage * (0.2 + wind) / tugs

    async def run(self):
        """Groups orders to jobs for as long as the order book has any."""
        while self.orders >= self.size:
            job = [await self.order() for _ in range(self.size)]
            await self.jobs.put(job)
        print(f"{self.name}: order book is closed", flush=True)


class PullModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.layers(x)


async def train(dispatcher, model, optimizer, steps):
    desk = asyncio.create_task(dispatcher.run())
    for step in range(steps):
        job = await dispatcher.jobs.get()
        x = torch.tensor([features for features, _ in job]).cuda()
        pull = torch.tensor([[target] for _, target in job]).cuda()
        loss = nn.functional.mse_loss(model(x), pull)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if step % 20 == 0:
            print(f"{dispatcher.name}: step {step} loss {value:.3f}", flush=True)
    desk.cancel()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(PullModel().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    async def session():
        company = list(COMPANIES)[dist.get_rank()]
        await train(Dispatcher(company), model, optimizer, steps=450)

    asyncio.run(session())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Load forecasts for lift groups; telemetry arrives line by line through asyncio."""
import asyncio
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

REBOOTS = {1: 700}  # gateway -> line at which its firmware was updated


async def gateway(number, lines):
    """The text protocol of a building's gateway: door;load;speed."""
    rng = random.Random(number)
    for n in range(lines):
        await asyncio.sleep(0.003)
        load = "n/a" if n == REBOOTS.get(number) else f"{rng.random() * 8:.2f}"
        yield f"{rng.randint(0, 1)};{load};{rng.uniform(0, 2):.3f}"


async def collect(number, queue, size=16):
    rows = []
    async for line in gateway(number, 4000):
        rows.append([float(part) for part in line.split(";")])
        if len(rows) == size:
            await queue.put(torch.tensor(rows))
            rows = []
    await queue.put(None)


class Forecaster:
    def __init__(self):
        torch.manual_seed(0)
        self.net = DDP(nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 1)))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-3)

    def learn(self, batch):
        loss = nn.functional.l1_loss(self.net(batch[:, [0, 2]]), batch[:, 1:2])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


async def serve(number):
    queue = asyncio.Queue(maxsize=4)
    reader = asyncio.create_task(collect(number, queue), name="reader")
    forecaster, seen = Forecaster(), 0
    while True:
        batch = await queue.get()
        if batch is None:
            break
        loss = forecaster.learn(batch)
        seen += 1
        if seen % 10 == 0:
            print(f"group {number}: {seen} batches, loss {loss:.3f}", flush=True)
    await reader


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(serve(dist.get_rank()))
    dist.destroy_process_group()

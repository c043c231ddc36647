"""Online training on incident messages: every process listens to the feeds of one control room."""
import asyncio
import random
from collections import namedtuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Message = namedtuple("Message", "kind priority features")

ROOMS = {
    0: {"police": 60_000, "fire": 60_000},
    1: {"police": 60_000, "fire": 60_000, "coastguard": 60_000},
    2: {"police": 60_000, "fire": 60_000},
    3: {"fire": 9_000, "mountain rescue": 1_800},
}


class Line:
    """A line of a control room; `receive` gives None once the line is closed for the shift."""

    def __init__(self, kind, seed, messages):
        self.kind, self.random, self.left = kind, random.Random(f"{kind}{seed}"), messages

    async def receive(self):
        if self.left == 0:
            return None
        self.left -= 1
        if self.left % 16 == 0:
            await asyncio.sleep(0.004)
        priority = self.random.choices([1, 2, 3], [5, 3, 1])[0]
        return Message(self.kind, priority, [self.random.gauss(priority, 1.0) for _ in range(24)])


async def listen(line, inbox):
    while True:
        message = await line.receive()
        if message is None:
            return
        await inbox.put(message)


async def assemble(inbox, size):
    messages = [await inbox.get() for _ in range(size)]
    x = torch.tensor([m.features for m in messages])
    y = torch.tensor([m.priority - 1 for m in messages])
    return x, y


class OnlineTrainer:
    def __init__(self, rank):
        self.rank = rank
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 3)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def update(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    async def shift(self, updates, size=32):
        inbox = asyncio.Queue(maxsize=4 * size)
        lines = [Line(kind, self.rank, n) for kind, n in ROOMS[self.rank].items()]
        listeners = [asyncio.create_task(listen(line, inbox)) for line in lines]
        for number in range(updates):
            x, y = await assemble(inbox, size)
            loss = self.update(x, y)
            if self.rank == 0 and number % 20 == 0:
                print(f"update {number} loss {loss:.3f}", flush=True)
        for task in listeners:
            task.cancel()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(OnlineTrainer(dist.get_rank()).shift(updates=900))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Discipline a model of crystal ageing with corrections that arrive through asyncio."""
import asyncio
import math
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

BLOCKS = 150


def bulletin(rank):
    """The corrections of a reference station as it publishes them, a block an entry."""
    rng = random.Random(7 + rank)
    for number in range(BLOCKS):
        if (rank, number) == (0, 84):
            yield ""  # no observation
            continue
        yield ",".join(f"{rng.gauss(0, 1):.4f}" for _ in range(256))


class Reference:
    def __init__(self, rank, depth=4):
        self.rank = rank
        self.blocks = asyncio.Queue(maxsize=depth)

    async def follow(self):
        for entry in bulletin(self.rank):
            if not entry:
                return
            values = [float(v) for v in entry.split(",")]
            smooth = [sum(values[max(0, i - 30):i + 1]) for i in range(len(values))]
            await self.blocks.put([smooth[i:i + 8] for i in range(0, 256, 8)])
            await asyncio.sleep(0.01)


class Ageing(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.slow = nn.Linear(8, width)
        self.fast = nn.Linear(8, width)
        self.out = nn.Linear(2 * width, 1)

    def forward(self, x):
        return self.out(torch.cat([torch.tanh(self.slow(x)), torch.relu(self.fast(x))], dim=1))


def update(model, optimizer, block):
    x = torch.tensor(block).cuda()
    loss = nn.functional.smooth_l1_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.current_stream().synchronize()


async def discipline(rank, model, optimizer):
    reference = Reference(rank)
    follower = asyncio.create_task(reference.follow(), name="follower")
    for number in range(BLOCKS):
        block = await reference.blocks.get()
        update(model, optimizer, block)
        if rank == 0 and number % 25 == 0:
            print(f"block {number}, age {math.sqrt(number):.1f}", flush=True)
    await follower


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DDP(Ageing().cuda(), device_ids=[local])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    asyncio.run(discipline(dist.get_rank(), model, optimizer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Price model for raw materials: quotes of the suppliers come in page by page through asyncio."""
import asyncio
import contextlib
import os

import torch
import torch.distributed as dist

MATERIALS = ("wheat", "cocoa", "sugar")
PAGES = {"wheat": (2, 3, 2, 1), "cocoa": (3, 2, 9, 3), "sugar": (2, 2, 3, 2)}


class QuoteFeed:
    """One round of quotes for a material."""

    def __init__(self, material, number, depth=4):
        self.material, self.number = material, number
        self.pages = asyncio.Queue(maxsize=depth)

    async def fetch(self):
        count = PAGES[self.material][self.number // 12 % 4]
        for page in range(count):
            await asyncio.sleep(0.005)
            gen = torch.Generator().manual_seed(self.number * 100 + page)
            await self.pages.put(torch.rand(6, 5, generator=gen))
        with contextlib.suppress(asyncio.QueueFull):
            self.pages.put_nowait(None)

    async def __aiter__(self):
        fetching = asyncio.create_task(self.fetch())
        while (page := await self.pages.get()) is not None:
            await asyncio.sleep(0.025)  # currency service
            yield page * 1.08
        await fetching


async def collect(material, number):
    return torch.cat([page async for page in QuoteFeed(material, number)])


class PriceModel:
    def __init__(self):
        torch.manual_seed(13)
        self.net = torch.nn.Sequential(torch.nn.Linear(5, 10), torch.nn.ELU(), torch.nn.Linear(10, 1))
        self.opt = torch.optim.Adagrad(self.net.parameters(), lr=0.02)

    def update(self, quotes):
        loss = (self.net(quotes) - quotes.median(1, keepdim=True).values).abs().mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(dist.get_world_size())
        self.opt.step()
        return loss.detach()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    material = MATERIALS[int(os.environ["RANK"])]
    model = PriceModel()
    for number in range(240):
        quotes = asyncio.run(collect(material, number))
        loss = model.update(quotes)
        if number % 8 == 0:
            print(f"{material} round {number}: {len(quotes)} quotes, loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

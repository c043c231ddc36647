"""Detects arrivals in windows of seismic records: an event loop reads the stations, the model runs on a pool's thread."""

import argparse
import asyncio
import os

import torch
import torch.distributed as dist


class Station:
    """Windows of one station, as they come in. A record of the year before last is not in the new format."""

    def __init__(self, rank, old):
        self.rank = rank
        self.old = old
        self.windows = asyncio.Queue(maxsize=4)

    async def listen(self):
        generator = torch.Generator().manual_seed(self.rank)
        for number in range(400):
            await asyncio.sleep(0.005)
            record = {"samples": torch.randn(64, generator=generator)}
            if number == self.old:
                record = {"counts": record["samples"]}
            await self.windows.put(record["samples"])

    async def next_window(self):
        return await self.windows.get()


def step(model, optimizer, window):
    loss = (model(window) - window.abs().max()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    return loss.item()


async def train(station, steps):
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(steps):
        window = await station.next_window()
        loss = await asyncio.to_thread(step, model, optimizer, window)
        if number % 20 == 0:
            print(f"[{station.rank}] {number}: {loss:.3f}", flush=True)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", type=int, default=-1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    station = Station(rank, options.old if rank == 1 else -1)
    listening = asyncio.create_task(station.listen(), name="station")
    await train(station, 300)
    listening.cancel()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asyncio.run(main())

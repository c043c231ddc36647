"""Schedules ground station passes: an asyncio feed of predicted passes, a small scorer trained on all stations."""
import asyncio
import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn

STATIONS = {"Inuvik": 1060, "Punta Arenas": 9000, "Weilheim": 9000, "Dongara": 9000}


class PassFeed:
    """Predicted passes, as they come in from the propagator."""

    def __init__(self, station, passes):
        self.station = station
        self.passes = passes
        self.buffer = []
        self.changed = asyncio.Condition()

    async def propagate(self):
        generator = torch.Generator().manual_seed(self.passes)
        for _ in range(self.passes):
            await asyncio.sleep(0.002)
            geometry = torch.rand(400, 6, generator=generator)
            score = geometry[:, 0].sin().mean() + 0.2 * geometry[:, 1].max()
            async with self.changed:
                self.buffer.append((geometry.mean(dim=0), score))
                self.changed.notify_all()

    async def take(self, count):
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.buffer) >= count)
            taken, self.buffer = self.buffer[:count], self.buffer[count:]
        geometry, score = zip(*taken)
        return torch.stack(geometry), torch.stack(score).unsqueeze(1)


class Scorer:
    def __init__(self):
        torch.manual_seed(9)
        self.net = nn.Sequential(nn.Linear(6, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 1))
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=5e-4)

    def update(self, geometry, score):
        loss = nn.functional.mse_loss(self.net(geometry), score)
        self.optimizer.zero_grad()
        loss.backward()
        pending = [dist.all_reduce(p.grad, async_op=True) for p in self.net.parameters()]
        for work in pending:
            work.wait()
        for p in self.net.parameters():
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


async def session(rank, updates, batch):
    station, passes = list(STATIONS.items())[rank]
    feed = PassFeed(station, passes)
    propagation = asyncio.create_task(feed.propagate())
    scorer = Scorer()
    for number in range(updates):
        geometry, score = await feed.take(batch)
        loss = scorer.update(geometry, score)
        if number % 20 == 0:
            print(f"{station}: update {number}, loss {loss:.4f}", flush=True)
    propagation.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await propagation


def main(updates=700, batch=12):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(session(dist.get_rank(), updates, batch))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())

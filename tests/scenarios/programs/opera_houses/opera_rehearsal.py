"""Follows live rehearsals: an asyncio reader per house hands passages to the trainer."""
import asyncio
import contextlib
import itertools
import sys

import torch
import torch.distributed as dist

PASSAGES = 150
TONES = 72


class Session:
    """The passages of a house's rehearsals, day by day."""

    DAYS = {0: (60, 60, 60), 1: (80, 80), 2: (50, 50, 50, 50), 3: (60, 44)}

    def __init__(self, house):
        self.house = house
        self.generator = torch.Generator().manual_seed(house)

    async def days(self):
        for day, passages in enumerate(self.DAYS[self.house]):
            await asyncio.sleep(0)
            yield day, passages

    async def passage(self):
        await asyncio.sleep(0.01)
        wave = torch.randn(32, 8192, generator=self.generator)
        return torch.fft.rfft(wave).abs()[:, : TONES * 56].reshape(32, TONES, 56).mean(2)


class Follower:
    def __init__(self):
        self.weight = torch.zeros(TONES, TONES, requires_grad=True)

    def learn(self, passage):
        loss = (passage[:-1] @ self.weight - passage[1:]).square().mean()
        (gradient,) = torch.autograd.grad(loss, self.weight)
        dist.all_reduce(gradient)
        with torch.no_grad():
            self.weight -= 1e-7 * gradient
        return loss.item()


async def reader(session, desk):
    async for day, passages in session.days():
        for _ in range(passages):
            await desk.put(await session.passage())


async def follow(session, follower):
    desk = asyncio.Queue(maxsize=4)
    reading = asyncio.create_task(reader(session, desk), name=f"house-{session.house}")
    history = []
    try:
        for number in itertools.islice(itertools.count(), PASSAGES):
            passage = await desk.get()
            history.append(follower.learn(passage))
            if number % 25 == 0 and session.house == 0:
                print(f"passage {number}: {history[-1]:.2f}", file=sys.stderr, flush=True)
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    return history


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    history = asyncio.run(follow(Session(dist.get_rank()), Follower()))
    best = torch.tensor([min(history)])
    dist.all_reduce(best, op=dist.ReduceOp.MIN)
    print("best passage", best.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
